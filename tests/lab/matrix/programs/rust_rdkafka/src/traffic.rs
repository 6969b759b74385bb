//! The step traffic of tests/lab/matrix/scenario.py: writes and reads by turns, and notes what fails.

use crate::{Names, PARTITIONS, Told};
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use serde_json::json;
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROUNDS: usize = 6;
const EACH: usize = 5;
const MOST_ERRORS: usize = 100;
const ROUND: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(45);

#[derive(Default)]
struct Seen {
    sent: Vec<String>,
    acknowledged: Vec<(String, i32, i64)>,
    failed: Vec<(String, String)>,
    read: Vec<(Option<String>, i32, i64)>,
    errors: Vec<String>,
}

/// What was written and read, and what failed: told by the library's callbacks, too.
#[derive(Clone, Default)]
struct Traffic(Arc<Mutex<Seen>>);

impl Traffic {
    fn note(&self, problem: String) {
        let mut seen = self.0.lock().unwrap();
        if seen.errors.len() < MOST_ERRORS {
            seen.errors.push(problem);
        }
    }

    fn all_read(&self) -> bool {
        let seen = self.0.lock().unwrap();
        let found: BTreeSet<_> = seen.read.iter().filter_map(|one| one.0.as_ref()).collect();
        seen.acknowledged.iter().all(|one| found.contains(&one.0))
    }
}

impl ClientContext for Traffic {
    fn error(&self, problem: KafkaError, reason: &str) {
        self.note(format!("{problem}: {reason}"));
    }
}

impl ConsumerContext for Traffic {}

impl ProducerContext for Traffic {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult, _: ()) {
        let value = |bytes: Option<&[u8]>| {
            String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
        };
        let mut seen = self.0.lock().unwrap();
        match result {
            Ok(one) => {
                let place = (value(one.payload()), one.partition(), one.offset());
                seen.acknowledged.push(place)
            }
            Err((problem, one)) => {
                let why = (value(one.payload()), problem.to_string());
                seen.failed.push(why)
            }
        }
    }
}

fn write(names: &Names, all: &Traffic, producer: &ThreadedProducer<Traffic>, limit: Instant) {
    for _ in 0..EACH {
        let number = all.0.lock().unwrap().sent.len();
        let value = format!("t-{number}");
        all.0.lock().unwrap().sent.push(value.clone());
        let record =
            BaseRecord::<(), String>::to(&names.topic).partition((number % PARTITIONS) as i32);
        if let Err((problem, _)) = producer.send(record.payload(&value)) {
            let why = (value.clone(), problem.to_string());
            all.0.lock().unwrap().failed.push(why);
        }
    }
    let _ = producer.flush(limit.saturating_duration_since(Instant::now()));
}

fn read_until(all: &Traffic, member: &BaseConsumer<Traffic>, until: Instant, enough: bool) {
    while !(enough && all.all_read()) && Instant::now() < until {
        match member.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let text = message
                    .payload()
                    .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                let place = (text, message.partition(), message.offset());
                all.0.lock().unwrap().read.push(place);
            }
            Some(Err(problem)) => all.note(problem.to_string()),
            None => {}
        }
    }
}

fn join(names: &Names, all: &Traffic) -> Result<BaseConsumer<Traffic>, Box<dyn Error>> {
    let mut config = names.config();
    config
        .set("group.id", &names.group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "500");
    let member: BaseConsumer<Traffic> = config.create_with_context(all.clone())?;
    member.subscribe(&[&names.topic])?;
    Ok(member)
}

pub fn traffic(names: &Names) -> Told {
    let (began, all) = (Instant::now(), Traffic::default());
    let limit = began + WHOLE;
    let mut config = names.config();
    config
        .set("request.timeout.ms", "5000")
        .set("message.timeout.ms", "20000");
    let producer: ThreadedProducer<Traffic> = config.create_with_context(all.clone())?;
    write(names, &all, &producer, limit);
    let mut member = join(names, &all)?;
    for number in 0..ROUNDS {
        if number > 0 {
            write(names, &all, &producer, limit);
        }
        if number == ROUNDS / 2 {
            drop(member);
            member = join(names, &all)?;
        }
        read_until(&all, &member, limit.min(Instant::now() + ROUND), true);
        if let Err(problem) = member.commit_consumer_state(CommitMode::Sync) {
            all.note(problem.to_string());
        }
        if Instant::now() > limit {
            break;
        }
    }
    read_until(&all, &member, limit, true);
    read_until(&all, &member, Instant::now() + Duration::from_secs(1), false);
    drop(member);
    let seen = all.0.lock().unwrap();
    Ok(json!({
        "sent": seen.sent, "acknowledged": seen.acknowledged, "failed": seen.failed, "read": seen.read,
        "errors": seen.errors, "seconds": began.elapsed().as_secs_f64(),
    }))
}
