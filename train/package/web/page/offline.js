// Keeps the whole page in the browser, so that it works without a network after the first visit.
const FILES = {{ files }};
// Other pages of the same server have stores of their own, and so has each version of this one.
const OWN = `topk-jax ${self.registration.scope} `;
const STORE = OWN + Object.values(FILES).join(" ");

self.addEventListener("install", (event) => {
  const keep = async () => {
    const cache = await caches.open(STORE);
    // Never an old file beside new ones: the server is asked whether each has changed.
    const wanted = Object.entries({ ...FILES, "./": FILES["index.html"] });
    const ask = ([name, integrity]) => new Request(name, { cache: "no-cache", integrity });
    await cache.addAll(wanted.map(ask));
    await self.skipWaiting();
  };
  event.waitUntil(keep());
});

self.addEventListener("activate", (event) => {
  const take = async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(OWN) && name !== STORE);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(take());
});

self.addEventListener("fetch", (event) => {
  const answer = async () => {
    const kept = await (await caches.open(STORE)).match(event.request, { ignoreSearch: true });
    // A browser refuses a page that came by a redirection, as index.html does from some servers.
    if (kept?.redirected) return new Response(kept.body, kept);
    return kept ?? fetch(event.request);
  };
  if (event.request.method === "GET") event.respondWith(answer());
});
