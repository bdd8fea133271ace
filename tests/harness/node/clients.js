// The official gRPC client for Node.js: a producer of all types, a push and a simple consumer, with
// the commands of java5/GrpcClients.java.
'use strict';
const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { TransactionResolution } = require(
  'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb',
);

const [ , , endpoints, accessKey, accessSecret ] = process.argv;
const logger = Object.fromEntries(
  [ 'debug', 'info', 'warn', 'error' ].map(level => [ level, console.error ]),
);
const options = {
  endpoints, namespace: '', logger, sslEnabled: true,
  sessionCredentials: { accessKey, accessSecret },
};

async function main() {
  const producer = new Producer({
    ...options,
    topics: [ 'Normal', 'Fifo', 'Delay', 'Trans' ],
    checker: { check: async () => TransactionResolution.COMMIT },
  });
  await producer.startup();
  const pushed = new Set();
  const all = new FilterExpression('*');
  await new PushConsumer({
    ...options,
    consumerGroup: 'pushed',
    subscriptions: new Map([ 'Normal', 'Fifo', 'Delay', 'Trans' ].map(name => [ name, all ])),
    messageListener: {
      consume: view => {
        pushed.add(text(view));
        // The first delivery of one fails.
        const fails = text(view).startsWith('n0') && view.getDeliveryAttempt() === 1;
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    },
  }).startup();
  const simple = new SimpleConsumer({
    ...options,
    consumerGroup: 'simple',
    subscriptions: new Map([[ 'Normal', new FilterExpression('tag') ]]),
    awaitDuration: 1000,
  });
  await simple.startup();
  const received = new Set();
  let round = 0;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line.includes('send')) {
      await sendAll(producer, round++);
      console.log(JSON.stringify({ sent: true }));
    } else {
      await receive(simple, received);
      console.log(JSON.stringify({ pushed: [ ...pushed ], received: [ ...received ] }));
    }
  }
  process.exit(0);
}

async function receive(simple, received) {
  try {
    for (const view of await simple.receive(16, 30_000)) {
      await simple.ack(view);
      received.add(text(view));
    }
  } catch (error) {
    console.error(error);
    await sleep(200);
  }
}

/** A client that has lost its connection fails for a while. */
async function sendAll(producer, round) {
  for (;;) {
    try {
      await send(producer, round);
      return;
    } catch (error) {
      console.error(error);
      await sleep(200);
    }
  }
}

async function send(producer, round) {
  for (let i = 0; i < 3; i++) {
    await producer.send(message('Normal', `n${i}-${round}`));
    await producer.send({ ...message('Fifo', `f${i}-${round}`), messageGroup: 'group' });
  }
  const deliveryTimestamp = new Date(Date.now() + 3000);
  const recalled = await producer.send({ ...message('Delay', `recalled-${round}`), deliveryTimestamp });
  await producer.recallMessage('Delay', recalled.recallHandle);
  await producer.send({ ...message('Delay', `d-${round}`), deliveryTimestamp });
  const committed = producer.beginTransaction();
  await producer.send(message('Trans', `t-${round}`), committed);
  await committed.commit();
  const rolledBack = producer.beginTransaction();
  await producer.send(message('Trans', `never-${round}`), rolledBack);
  await rolledBack.rollback();
  // Its end is asked for.
  await producer.send(message('Trans', `asked-${round}`), producer.beginTransaction());
}

function message(topic, body) {
  return {
    topic,
    tag: 'tag',
    keys: [ `key-${body}` ],
    properties: new Map([[ 'colour', 'blue' ]]),
    body: Buffer.from(body),
  };
}

function text(view) {
  const whole = view.getTag() === 'tag' && view.getKeys().length === 1 &&
    view.getProperties().get('colour') === 'blue' && !view.corrupted;
  const body = view.getBody().toString();
  return whole ? body : `damaged ${body}`;
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
