"""Signals that a run receives, and those that its process ignores."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from train.training import stop_signals
from train.training.stop_signals import StopSignals


def test_a_signal_that_the_process_ignores_stops_no_run():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals(None) as received:
            os.kill(os.getpid(), signal.SIGINT)
            assert received.current() == stop_signals.NOTHING
            os.kill(os.getpid(), signal.SIGTERM)
            assert received.current() == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_in_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGINT)

    def run():
        with StopSignals(0.0) as received:
            assert signal.getsignal(signal.SIGINT) is before
            return received.current()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result() == stop_signals.SAVE
