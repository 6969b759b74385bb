//! The scenario of tests/lab/matrix/scenario.py by rskafka, which has neither groups nor transactions.

mod traffic;

use chrono::Utc;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::future::Future;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const COUNT: usize = 30;
const PARTITIONS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(90);
const MILLISECONDS: i32 = 30_000;

type Told = Result<Value, Box<dyn Error>>;

/// The version of rskafka that was built in, as the lock file has it.
fn version() -> &'static str {
    let after = include_str!("../Cargo.lock").split_once("name = \"rskafka\"\nversion = \"");
    after
        .and_then(|(_, rest)| rest.split('"').next())
        .unwrap_or("unknown")
}

async fn connect(bootstrap: &str) -> Result<Client, Box<dyn Error>> {
    let addresses = bootstrap.split(',').map(str::to_string).collect();
    Ok(ClientBuilder::new(addresses).build().await?)
}

async fn partition(
    client: &Client,
    topic: &str,
    number: usize,
) -> Result<PartitionClient, Box<dyn Error>> {
    Ok(client
        .partition_client(topic, number as i32, UnknownTopicHandling::Error)
        .await?)
}

/// v-0 and so on to all partitions in turn; confirmations name no topic.
async fn produce(bootstrap: &str, topic: &str) -> Told {
    let client = connect(bootstrap).await?;
    let mut topics = BTreeSet::new();
    for number in 0..PARTITIONS {
        let to = partition(&client, topic, number).await?;
        let records = (number..COUNT).step_by(PARTITIONS).map(|number| Record {
            key: None,
            value: Some(format!("v-{number}").into_bytes()),
            headers: BTreeMap::new(),
            timestamp: Utc::now(),
        });
        to.produce(records.collect(), Compression::default())
            .await?;
        topics.insert(to.topic().to_string());
    }
    Ok(json!({"topics": topics}))
}

/// Without a group: each partition is read up to its end.
async fn consume(bootstrap: &str, topic: &str) -> Told {
    let client = connect(bootstrap).await?;
    let (mut topics, mut values) = (BTreeSet::new(), Vec::new());
    for number in 0..PARTITIONS {
        let from = partition(&client, topic, number).await?;
        let (mut next, mut end) = (0, i64::MAX);
        while next < end {
            let (records, watermark) = from.fetch_records(next, 1..1_000_000, 500).await?;
            end = watermark;
            for found in records {
                next = found.offset + 1;
                values.push(String::from_utf8(found.record.value.unwrap_or_default())?);
            }
        }
        topics.insert(from.topic().to_string());
    }
    Ok(json!({"topics": topics, "values": values}))
}

/// The names of all topics and how many partitions MADE has, once it is there or not.
async fn wait(
    client: &Client,
    made: &str,
    there: bool,
) -> Result<(Vec<String>, usize), Box<dyn Error>> {
    loop {
        let topics = client.list_topics().await?;
        let found = topics
            .iter()
            .find(|one| one.name == made)
            .map(|one| one.partitions.len());
        if found.is_some() == there {
            let names = topics.into_iter().map(|one| one.name).collect();
            return Ok((names, found.unwrap_or(0)));
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn admin(bootstrap: &str, made: &str) -> Told {
    let client = connect(bootstrap).await?;
    let controller = client.controller_client()?;
    controller.create_topic(made, 2, 1, MILLISECONDS).await?;
    let (listed, partitions) = wait(&client, made, true).await?;
    controller.delete_topic(made, MILLISECONDS).await?;
    wait(&client, made, false).await?;
    Ok(json!({"listed": listed, "partitions": partitions}))
}

async fn missing(what: &str) -> Told {
    Ok(json!({"missing": what}))
}

async fn tell(step: &str, done: impl Future<Output = Told>) {
    let told = timeout(PATIENCE, done)
        .await
        .unwrap_or_else(|_| Err("it took too long".into()));
    let mut line = told.unwrap_or_else(|problem| json!({"error": problem.to_string()}));
    line["step"] = json!(step);
    println!("{line}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let given: Vec<String> = std::env::args().collect();
    let (bootstrap, topic, made) = (&given[1], &given[2], &given[3]);
    let only = &given[6..];
    let all = only.is_empty();
    tell("client", async { Ok(json!({"version": version()})) }).await;
    if all || only.iter().any(|one| one == "produce") {
        tell("produce", produce(bootstrap, topic)).await;
    }
    if all || only.iter().any(|one| one == "consume") {
        tell("consume", consume(bootstrap, topic)).await;
    }
    if all {
        tell("group", missing("it has no groups")).await;
        tell("transactions", missing("it has no transactions")).await;
        tell("admin", admin(bootstrap, made)).await;
        tell("brokers", missing("it does not report its brokers")).await;
    }
    if only.iter().any(|one| one == "traffic") {
        tell("traffic", traffic::traffic(bootstrap, topic)).await;
    }
}
