"""Counts of all workers, in the format of Prometheus."""

from prometheus_client.parser import text_string_to_metric_families

from train.serving.meter import Meter


def numbers(meter):
    families = text_string_to_metric_families(meter.text().decode())
    return {
        (one.name, *one.labels.values()): one.value for family in families for one in family.samples
    }


def test_counts_of_all_workers_are_added():
    meter = Meter(2)
    for worker in (0, 1, 1):
        meter.choose_worker(worker)
        meter.accept()
        meter.answer_predict(200, 0.02)
        meter.add_batch(16, 10)
        meter.add_set(3, none_of_these=worker == 0)
        meter.show(worker + 1, 5)
    meter.answer_predict(418, 99.0)
    meter.answer("/health", 503)
    found = numbers(meter)
    assert found["topk_jax_requests_total", "/predict", "200"] == 3
    # A status that is not expected counts as a mistake.
    assert found["topk_jax_requests_total", "/predict", "500"] == 1
    assert found["topk_jax_requests_total", "/health", "503"] == 1
    assert found["topk_jax_batches_total",] == 3
    assert found["topk_jax_examples_total",] == 30
    assert found["topk_jax_padding_total",] == 18
    assert found["topk_jax_none_of_these_total",] == 1
    assert found["topk_jax_requests_in_progress",] == 3
    assert found["topk_jax_examples_waiting",] == 10
    assert found["topk_jax_request_seconds_bucket", "0.01"] == 0
    assert found["topk_jax_request_seconds_bucket", "0.025"] == 3
    assert found["topk_jax_request_seconds_bucket", "+Inf"] == 4
    assert found["topk_jax_request_seconds_count",] == 4
    assert found["topk_jax_request_seconds_sum",] == 99.06
    assert found["topk_jax_set_size_bucket", "2.0"] == 0
    assert found["topk_jax_set_size_bucket", "3.0"] == 3
    # Of requests for sets.
    assert meter.totals() == (3, 4)


def test_a_worker_that_is_started_again_continues_with_its_counts():
    meter = Meter(1)
    meter.accept()
    meter.show(7, 7)
    meter.choose_worker(0)
    found = numbers(meter)
    assert meter.totals() == (1, 0)
    # What was in progress ended with the process.
    assert found["topk_jax_requests_in_progress",] == 0
