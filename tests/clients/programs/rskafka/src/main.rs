//! The scenario of tests/clients/scenario.py by rskafka, which has neither groups nor transactions.

use chrono::Utc;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::{Duration, Instant};

const COUNT: usize = 30;
const PARTITIONS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(90);

type Told = Result<Value, Box<dyn Error>>;

async fn produce(client: &Client, topic: &str) -> Told {
    let mut topics = BTreeSet::new();
    for partition in 0..PARTITIONS {
        let to = client.partition_client(topic, partition as i32, UnknownTopicHandling::Error).await?;
        let numbers = (partition..COUNT).step_by(PARTITIONS);
        let records = numbers.map(|number| Record {
            key: None,
            value: Some(format!("v-{number}").into_bytes()),
            headers: BTreeMap::new(),
            timestamp: Utc::now(),
        });
        to.produce(records.collect(), Compression::default()).await?;
        topics.insert(to.topic().to_string());
    }
    Ok(json!({"topics": topics}))
}

async fn consume(client: &Client, topic: &str) -> Told {
    let (mut topics, mut values) = (BTreeSet::new(), Vec::new());
    for partition in 0..PARTITIONS {
        let from = client.partition_client(topic, partition as i32, UnknownTopicHandling::Error).await?;
        let (mut next, share) = (0, values.len() + COUNT / PARTITIONS);
        let limit = Instant::now() + PATIENCE;
        while values.len() < share && Instant::now() < limit {
            for found in from.fetch_records(next, 1..1_000_000, 500).await?.0 {
                next = found.offset + 1;
                values.push(String::from_utf8(found.record.value.unwrap_or_default())?);
            }
        }
        topics.insert(from.topic().to_string());
    }
    Ok(json!({"topics": topics, "values": values}))
}

/// The names of all topics and the partitions of MADE, once it is there or not.
async fn wait(client: &Client, made: &str, there: bool) -> Result<(Vec<String>, usize), Box<dyn Error>> {
    let limit = Instant::now() + PATIENCE;
    while Instant::now() < limit {
        let topics = client.list_topics().await?;
        let found = topics.iter().find(|one| one.name == made).map(|one| one.partitions.len());
        if found.is_some() == there {
            return Ok((topics.into_iter().map(|one| one.name).collect(), found.unwrap_or(0)));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("{made}: there should be {there}").into())
}

async fn admin(client: &Client, made: &str) -> Told {
    let controller = client.controller_client()?;
    controller.create_topic(made, 2, 1, 30_000).await?;
    let (listed, partitions) = wait(client, made, true).await?;
    controller.delete_topic(made, 30_000).await?;
    wait(client, made, false).await?;
    Ok(json!({"listed": listed, "partitions": partitions}))
}

fn tell(step: &str, told: Told) {
    let mut line = told.unwrap_or_else(|problem| json!({"error": problem.to_string()}));
    line["step"] = json!(step);
    println!("{line}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let client = ClientBuilder::new(names[0].split(',').map(str::to_string).collect()).build().await?;
    tell("client", Ok(json!({"version": "0.6"})));
    tell("produce", produce(&client, &names[1]).await);
    tell("consume", consume(&client, &names[1]).await);
    tell("group", Ok(json!({"missing": "it has no groups"})));
    tell("transactions", Ok(json!({"missing": "it has no transactions"})));
    tell("admin", admin(&client, &names[2]).await);
    tell("brokers", Ok(json!({"missing": "it does not tell addresses"})));
    Ok(())
}
