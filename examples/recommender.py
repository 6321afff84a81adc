"""Top-20 of 100,000 items: a two-tower recommender with the noised hinge and bfloat16 scores.

    python -m examples.recommender

Each user has one of 50 tastes, and each taste has 200 items of its own. The loss takes half
precision and computes in float32. It needs about one and a half arrays [batch, items] for any M.
"""

import jax
import jax.numpy as jnp
import optax

from topk_jax import losses, metrics

NUM_ITEMS = 100_000
NUM_TASTES = 50
LIKED = 200
WIDTH = 32
K = 20
BATCH_SIZE = 64
NUM_STEPS = 50


def main() -> float:
    """Trains and returns the share of new users whose next item is among the 20 best."""
    item_key, user_key, draw_key = jax.random.split(jax.random.key(0), 3)
    liked = jax.random.choice(item_key, NUM_ITEMS, (NUM_TASTES, LIKED), replace=False)
    taste_vectors = jax.random.normal(user_key, (NUM_TASTES, WIDTH))

    def draw(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
        """Users, which are their taste's vector plus noise, and the next item of each."""
        taste_of, noise_key, item_of = jax.random.split(key, 3)
        tastes = jax.random.randint(taste_of, (size,), 0, NUM_TASTES)
        users = taste_vectors[tastes] + 0.3 * jax.random.normal(noise_key, (size, WIDTH))
        # Some items are far more popular than others.
        ranks = (LIKED * jax.random.uniform(item_of, (size,)) ** 4).astype(jnp.int32)
        return users, liked[tastes, ranks]

    def scores(items: jax.Array, users: jax.Array) -> jax.Array:
        return (users.astype(jnp.bfloat16) @ items.astype(jnp.bfloat16).T) / WIDTH**0.5

    optimizer = optax.adam(0.05)

    @jax.jit
    def step(items, opt_state, key):
        users, taken = draw(key, BATCH_SIZE)

        def mean_loss(items):
            values = losses.noised_top_k_hinge(
                scores(items, users), taken, k=K, epsilon=1.0, num_samples=3, key=key
            )
            return values.mean()

        loss, gradient = jax.value_and_grad(mean_loss)(items)
        updates, opt_state = optimizer.update(gradient, opt_state)
        return optax.apply_updates(items, updates), opt_state, loss

    items = jnp.zeros((NUM_ITEMS, WIDTH))
    opt_state = optimizer.init(items)
    for number in range(NUM_STEPS):
        items, opt_state, loss = step(items, opt_state, jax.random.fold_in(draw_key, number))
        if number % 20 == 19:
            print(f"step {number + 1}: loss {loss:.3f}")
    users, taken = draw(jax.random.key(1), 600)
    hits = [
        metrics.top_k_hits(scores(items, some_users), some_taken, k=K)
        for some_users, some_taken in zip(jnp.split(users, 6), jnp.split(taken, 6), strict=True)
    ]
    accuracy = float(metrics.accuracy(jnp.concatenate(hits)))
    # The probability that the next item is among the 20 most popular items of the taste.
    best = (K / LIKED) ** 0.25
    print(
        f"the next item is among the {K} best of {NUM_ITEMS:,}: {accuracy:.3f} ({best:.3f} at best)"
    )
    return accuracy


if __name__ == "__main__":
    main()
