"""Tasks of Celery that send messages; each worker process makes a producer of its own.

Run: NAMESRV_ADDR=127.0.0.1:9876 celery -A celery_tasks worker. As a program it starts a node and
such a worker, and does one task. Needs: pip install celery 'congreve[broker]'
"""

import os
import sys
from pathlib import Path
from subprocess import Popen

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

from congreve.client import Message, SyncProducer

FOLDER = Path("celery").absolute()
app = Celery("tasks", broker="filesystem://", backend=f"file://{FOLDER}/results")
app.conf.broker_transport_options = {
    "data_folder_in": str(FOLDER / "queue"),
    "data_folder_out": str(FOLDER / "queue"),
    "control_folder": str(FOLDER / "control"),
}
producers: list[SyncProducer] = []


@worker_process_init.connect
def start_producer(**_: object) -> None:
    """A producer belongs to the process that made it: make it after Celery's fork."""
    producer = SyncProducer(os.environ["NAMESRV_ADDR"], group="shop")
    producer.start()
    producers.append(producer)


@worker_process_shutdown.connect
def stop_producer(**_: object) -> None:
    """Send what waits, and unregister at the brokers."""
    while producers:
        producers.pop().stop()


@app.task(name="order")
def order(number: int) -> str:
    """Returns the id of the message."""
    return producers[0].send(Message(topic="orders", body=b"%d" % number)).message_id


if __name__ == "__main__":
    import congreve

    for name in ("queue", "control", "results"):
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
    with congreve.serve("data") as node:
        os.environ["NAMESRV_ADDR"] = node.address
        os.environ["PYTHONPATH"] = str(Path(__file__).parent)
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker"]
        with Popen([*command, "--concurrency", "2", "--loglevel", "ERROR"]) as worker:
            ids = [order.delay(number).get(timeout=60) for number in (1, 2, 3)]
            worker.terminate()
        print("sent", len(set(ids)), "messages")
