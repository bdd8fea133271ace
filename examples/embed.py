"""A broker inside a program: start it, send a message, receive it."""

import congreve

with congreve.serve("data") as node:
    with node.producer("writers") as producer:
        producer.send(congreve.Message(topic="orders", body=b"hello"))
    with node.consumer("readers", topics={"orders": "*"}) as consumer:
        for message in consumer.poll():
            print(message.body.decode())
