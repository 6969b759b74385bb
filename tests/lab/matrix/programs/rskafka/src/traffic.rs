//! The step traffic of tests/lab/matrix/scenario.py: writes and reads by turns, and notes what fails.
//! Without groups nothing is committed; the second reader goes on where the first has stopped.

use crate::{PARTITIONS, Told, connect, partition};
use chrono::Utc;
use rskafka::client::partition::{Compression, PartitionClient};
use rskafka::record::Record;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const ROUNDS: usize = 6;
const EACH: usize = 5;
const MOST_ERRORS: usize = 100;
const ROUND: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(45);

struct Traffic {
    limit: Instant,
    sent: Vec<String>,
    acknowledged: Vec<(String, usize, i64)>,
    failed: Vec<(String, String)>,
    read: Vec<(Option<String>, usize, i64)>,
    errors: Vec<String>,
    next: [i64; PARTITIONS],
}

impl Traffic {
    fn note(&mut self, problem: String) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(problem);
        }
    }

    fn left(&self) -> Duration {
        self.limit
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(100))
    }

    fn all_read(&self) -> bool {
        let found: BTreeSet<_> = self.read.iter().filter_map(|one| one.0.as_ref()).collect();
        self.acknowledged.iter().all(|one| found.contains(&one.0))
    }

    async fn write(&mut self, places: &[PartitionClient]) {
        for _ in 0..EACH {
            let number = self.sent.len();
            let value = format!("t-{number}");
            self.sent.push(value.clone());
            let record = Record {
                key: None,
                value: Some(value.clone().into_bytes()),
                headers: BTreeMap::new(),
                timestamp: Utc::now(),
            };
            let to = &places[number % PARTITIONS];
            let doing = to.produce(vec![record], Compression::default());
            match timeout(self.left(), doing).await {
                Ok(Ok(offsets)) => {
                    self.acknowledged
                        .push((value, number % PARTITIONS, offsets[0]))
                }
                Ok(Err(problem)) => self.failed.push((value, problem.to_string())),
                Err(_) => self.note(format!("no answer to {value}")),
            }
        }
    }

    async fn read_until(&mut self, places: &[PartitionClient], once: bool, until: Instant) {
        while (once || !self.all_read()) && Instant::now() < until {
            for (number, from) in places.iter().enumerate() {
                let doing = from.fetch_records(self.next[number], 1..1_000_000, 100);
                match timeout(self.left(), doing).await {
                    Ok(Ok((records, _))) => {
                        for found in records {
                            self.next[number] = found.offset + 1;
                            let value = found.record.value;
                            let text = value.map(|one| String::from_utf8_lossy(&one).into_owned());
                            self.read.push((text, number, found.offset));
                        }
                    }
                    Ok(Err(problem)) => {
                        self.note(problem.to_string());
                        sleep(Duration::from_millis(100)).await;
                    }
                    Err(_) => self.note(format!("no answer from partition {number}")),
                }
            }
        }
    }
}

pub async fn traffic(bootstrap: &str, topic: &str) -> Told {
    let began = Instant::now();
    let mut all = Traffic {
        limit: began + WHOLE,
        sent: vec![],
        acknowledged: vec![],
        failed: vec![],
        read: vec![],
        errors: vec![],
        next: [0; PARTITIONS],
    };
    let client = connect(bootstrap).await?;
    let mut places = Vec::new();
    for number in 0..PARTITIONS {
        places.push(partition(&client, topic, number).await?);
    }
    for _ in 0..ROUNDS {
        all.write(&places).await;
        let until = all.limit.min(Instant::now() + ROUND);
        all.read_until(&places, false, until).await;
        if Instant::now() > all.limit {
            break;
        }
    }
    let limit = all.limit;
    all.read_until(&places, false, limit).await;
    all.read_until(&places, true, Instant::now() + Duration::from_secs(1))
        .await;
    let told: Value = json!({
        "sent": all.sent, "acknowledged": all.acknowledged, "failed": all.failed, "read": all.read,
        "errors": all.errors, "seconds": began.elapsed().as_secs_f64(),
    });
    Ok(told)
}
