"""Send messages for later, by the broker's delay levels."""

import time

import congreve

# Each level is a delay: these are 1 s for level 1 and 2 s for level 2; RocketMQ has 18 up to 2 h.
with congreve.serve("data", messageDelayLevel="1s 2s") as node:
    with node.producer("reminders") as producer:
        sent = time.time()
        for level in (2, 1, 0):
            body = b"level %d" % level
            producer.send(congreve.Message(topic="reminders", body=body, delay_level=level))
    with node.consumer("mailer", topics={"reminders": "*"}) as consumer:
        received = 0
        while received < 3:
            for message in consumer.poll():
                received += 1
                print(f"{message.body.decode()}: after {time.time() - sent:.1f} s")
