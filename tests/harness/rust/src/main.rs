//! The official gRPC client for Rust: a producer of all types and two simple consumers (it has no
//! push consumer), with the commands of java5/GrpcClients.java.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

type Failure = Box<dyn std::error::Error>;

const TOPICS: [&str; 4] = ["Normal", "Fifo", "Delay", "Trans"];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut producing = ProducerOption::default();
    producing.set_topics(TOPICS.to_vec());
    let mut producer = Producer::new_transaction_producer(
        producing,
        client(),
        Box::new(|_, _| TransactionResolution::COMMIT),
    )?;
    producer.start().await?;
    let pushing = consumer("pushed", &TOPICS).await?;
    let simple = consumer("simple", &["Normal"]).await?;
    let (mut pushed, mut received) = (BTreeSet::new(), BTreeSet::new());
    let mut round = 0;
    for line in io::stdin().lock().lines() {
        if line?.contains("send") {
            // A client that has lost its connection fails for a while.
            while let Err(failure) = send(&producer, round).await {
                eprintln!("{failure}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            round += 1;
            println!("{{\"sent\": true}}");
            continue;
        }
        for topic in TOPICS {
            receive(&pushing, topic, "*", &mut pushed).await;
        }
        receive(&simple, "Normal", "tag", &mut received).await;
        let (pushed, received) = (Vec::from_iter(&pushed), Vec::from_iter(&received));
        println!("{{\"pushed\": {pushed:?}, \"received\": {received:?}}}")
    }
    Ok(())
}

fn client() -> ClientOption {
    let args: Vec<String> = std::env::args().collect();
    let mut option = ClientOption::default();
    option.set_access_url(&args[1]);
    option.set_access_key(&args[2]);
    option.set_secret_key(&args[3]);
    option.set_long_polling_timeout(Duration::from_secs(3));
    option
}

async fn consumer(group: &str, topics: &[&str]) -> Result<SimpleConsumer, Failure> {
    let mut option = SimpleConsumerOption::default();
    option.set_consumer_group(group);
    option.set_topics(topics.to_vec());
    let mut consumer = SimpleConsumer::new(option, client())?;
    consumer.start().await?;
    Ok(consumer)
}

async fn receive(consumer: &SimpleConsumer, topic: &str, tag: &str, found: &mut BTreeSet<String>) {
    let expression = FilterExpression::new(FilterType::Tag, tag);
    match consumer.receive(topic, &expression).await {
        Ok(views) => {
            for view in views {
                if consumer.ack(&view).await.is_ok() {
                    found.insert(text(&view));
                }
            }
        }
        Err(failure) => eprintln!("{failure}"),
    }
}

async fn send(producer: &Producer, round: u32) -> Result<(), Failure> {
    let normal: Result<Vec<_>, _> = (0..3)
        .map(|i| message(MessageBuilder::builder(), "Normal", &format!("n{i}-{round}")).build())
        .collect();
    let receipts = producer.batch_send(normal?).await?;
    assert_eq!(receipts.len(), 3, "one receipt each");
    for i in 0..3 {
        let ordered = message(MessageBuilder::builder(), "Fifo", &format!("f{i}-{round}"));
        producer.send(ordered.set_message_group("group").build()?).await?;
    }
    let due = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64 + 3;
    let delayed = message(MessageBuilder::builder(), "Delay", &format!("d-{round}"));
    producer.send(delayed.set_delivery_timestamp(due).build()?).await?;
    for name in ["t", "never", "asked"] {
        let half = message(MessageBuilder::builder(), "Trans", &format!("{name}-{round}"));
        let open = producer.send_transaction_message(half.enable_transaction().build()?).await?;
        match name {
            "t" => open.commit().await?,
            "never" => open.rollback().await?,
            _ => (),
        }
    }
    Ok(())
}

fn message(builder: MessageBuilder, topic: &str, body: &str) -> MessageBuilder {
    builder
        .set_topic(topic)
        .set_body(body.as_bytes().to_vec())
        .set_tag("tag")
        .set_keys(vec![format!("key-{body}")])
        .set_properties(HashMap::from([("colour", "blue")]))
}

fn text(view: &MessageView) -> String {
    let whole = view.tag() == Some("tag")
        && view.keys().len() == 1
        && view.properties().get("colour").is_some_and(|it| it == "blue");
    let body = String::from_utf8_lossy(view.body());
    if whole { body.into() } else { format!("damaged {body}") }
}
