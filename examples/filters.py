"""Let the broker choose messages by their properties: a SQL92 filter."""

import congreve
from congreve.client import Sql

with congreve.serve("data", enablePropertyFilter=True) as node:
    with node.producer("shop") as producer:
        for price in (5, 50, 500):
            properties = {"price": str(price), "country": "PE"}
            body = b"%d" % price
            producer.send(congreve.Message(topic="orders", body=body, properties=properties))
    expensive = Sql("country = 'PE' AND price BETWEEN 10 AND 1000")
    with node.consumer("audit", topics={"orders": expensive}) as consumer:
        seen = 0
        while seen < 2:
            for message in consumer.poll():
                seen += 1
                print(f"price {message.properties['price']}")
