//! The scenario of tests/lab/matrix/scenario.py by rust-rdkafka.

mod traffic;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const COUNT: usize = 30;
const PARTITIONS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(90);

type Told = Result<Value, Box<dyn Error>>;
type Words = Vec<(String, String)>;

/// The version of rust-rdkafka that was built in, as the lock file has it.
fn version() -> &'static str {
    let after = include_str!("../Cargo.lock").split_once("name = \"rdkafka\"\nversion = \"");
    after
        .and_then(|(_, rest)| rest.split('"').next())
        .unwrap_or("unknown")
}

struct Names {
    bootstrap: String,
    topic: String,
    made: String,
    group: String,
    transactional_id: String,
}

/// Collects the topics of confirmations.
#[derive(Default)]
struct Confirmed(Mutex<BTreeSet<String>>, Mutex<Vec<String>>);

impl ClientContext for Confirmed {}

impl ProducerContext for Confirmed {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult, _: ()) {
        match result {
            Ok(message) => drop(self.0.lock().unwrap().insert(message.topic().to_string())),
            Err((problem, _)) => self.1.lock().unwrap().push(problem.to_string()),
        }
    }
}

impl Names {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("log_level", "0");
        config
    }

    fn producer(&self, transactional: bool) -> Result<ThreadedProducer<Confirmed>, Box<dyn Error>> {
        let mut config = self.config();
        if transactional {
            config.set("transactional.id", &self.transactional_id);
        }
        Ok(config.create_with_context(Confirmed::default())?)
    }

    /// word-0 and so on to all partitions in turn; the names of the topics that were confirmed.
    fn send(
        &self,
        producer: &ThreadedProducer<Confirmed>,
        word: &str,
    ) -> Result<BTreeSet<String>, Box<dyn Error>> {
        for number in 0..COUNT {
            let value = format!("{word}-{number}");
            let record =
                BaseRecord::<(), String>::to(&self.topic).partition((number % PARTITIONS) as i32);
            producer
                .send(record.payload(&value))
                .map_err(|(problem, _)| problem)?;
        }
        producer.flush(PATIENCE)?;
        let problems = producer.context().1.lock().unwrap().clone();
        if problems.is_empty() {
            Ok(producer.context().0.lock().unwrap().clone())
        } else {
            Err(problems.join(", ").into())
        }
    }

    fn produce(&self, word: &str) -> Result<BTreeSet<String>, Box<dyn Error>> {
        self.send(&self.producer(false)?, word)
    }

    fn consumer(&self, group: &str) -> Result<BaseConsumer, Box<dyn Error>> {
        let mut config = self.config();
        config
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false");
        config
            .set("session.timeout.ms", "10000")
            .set("isolation.level", "read_committed");
        Ok(config.create()?)
    }

    fn all_places(&self) -> TopicPartitionList {
        let mut places = TopicPartitionList::new();
        places.add_partition_range(&self.topic, 0, PARTITIONS as i32 - 1);
        places
    }

    fn committed(&self, consumer: &BaseConsumer) -> Result<i64, Box<dyn Error>> {
        let found = consumer.committed_offsets(self.all_places(), PATIENCE)?;
        Ok(found
            .elements()
            .iter()
            .filter_map(|one| one.offset().to_raw())
            .filter(|offset| *offset > 0)
            .sum())
    }

    fn consume(&self) -> Told {
        let member = self.consumer(&self.group)?;
        member.subscribe(&[&self.topic])?;
        let mut found = vec![Words::new()];
        poll(&[&member], &mut found, |found| found[0].len() >= COUNT)?;
        member.commit_consumer_state(CommitMode::Sync)?;
        Ok(json!({"topics": topics(&found), "values": values(&found[0])}))
    }

    fn share(&self) -> Told {
        let (first, second) = (self.consumer(&self.group)?, self.consumer(&self.group)?);
        first.subscribe(&[&self.topic])?;
        second.subscribe(&[&self.topic])?;
        let mut found = vec![Words::new(), Words::new()];
        let has = |one: &BaseConsumer| {
            one.assignment()
                .map(|places| places.count() > 0)
                .unwrap_or(false)
        };
        poll(&[&first, &second], &mut found, |_| {
            has(&first) && has(&second)
        })?;
        let assigned = first
            .assignment()?
            .elements()
            .iter()
            .map(|one| one.topic().to_string())
            .collect::<Vec<_>>();
        self.produce("w")?;
        poll(&[&first, &second], &mut found, |found| {
            distinct(found).len() >= COUNT
        })?;
        let shares = [found[0].len(), found[1].len()];
        first.commit_consumer_state(CommitMode::Sync)?;
        second.commit_consumer_state(CommitMode::Sync)?;
        drop(second);
        let all = |one: &BaseConsumer| {
            one.assignment().map(|places| places.count()).unwrap_or(0) == PARTITIONS
        };
        poll(&[&first], &mut found, |_| all(&first))?; // else records would be read twice
        self.produce("x")?;
        poll(&[&first], &mut found, |found| {
            distinct(found).len() >= 2 * COUNT
        })?;
        first.commit_consumer_state(CommitMode::Sync)?;
        let mut seen = topics(&found);
        seen.extend(assigned);
        let committed = self.committed(&first)?;
        Ok(
            json!({"topics": seen, "values": distinct(&found), "shares": shares, "committed": committed}),
        )
    }

    fn transactions(&self) -> Told {
        let producer = self.producer(true)?;
        producer.init_transactions(PATIENCE)?;
        let reader = self.consumer(&format!("{}-offsets", self.group))?;
        let mut seven = TopicPartitionList::new();
        seven.add_partition_offset(&self.topic, 0, Offset::Offset(7))?;
        let who = reader.group_metadata().ok_or("no group metadata")?;
        for word in ["aborted", "kept"] {
            producer.begin_transaction()?;
            self.send(&producer, word)?;
            producer.send_offsets_to_transaction(&seven, &who, PATIENCE)?;
            if word == "kept" {
                producer.commit_transaction(PATIENCE)?;
            } else {
                producer.abort_transaction(PATIENCE)?;
            }
        }
        let limit = Instant::now() + PATIENCE;
        let mut committed = 0;
        while committed == 0 && Instant::now() < limit {
            committed = self.committed(&reader)?; // the commit is on its way
        }
        let mut places = self.all_places();
        places.set_all_offsets(Offset::Beginning)?;
        reader.assign(&places)?;
        let mut found = vec![Words::new()];
        let kept = |found: &[Words]| {
            found[0]
                .iter()
                .filter(|(_, value)| value.starts_with("kept"))
                .count()
        };
        poll(&[&reader], &mut found, |found| kept(found) >= COUNT)?;
        found[0].retain(|(_, value)| value.starts_with("kept") || value.starts_with("aborted"));
        Ok(json!({"topics": topics(&found), "values": values(&found[0]), "committed": committed}))
    }

    /// The names of all topics and the partitions of MADE, once it is there or not.
    fn wait(
        &self,
        admin: &AdminClient<DefaultClientContext>,
        there: bool,
    ) -> Result<(Vec<String>, usize), Box<dyn Error>> {
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            let known = admin.inner().fetch_metadata(None, PATIENCE)?;
            let names = known
                .topics()
                .iter()
                .map(|one| one.name().to_string())
                .collect::<Vec<_>>();
            let made = known.topics().iter().find(|one| one.name() == self.made);
            if made.is_some() == there {
                return Ok((names, made.map(|one| one.partitions().len()).unwrap_or(0)));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("{}: there should be {there}", self.made).into())
    }

    async fn admin(&self) -> Told {
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let new = NewTopic::new(&self.made, 2, TopicReplication::Fixed(1));
        admin
            .create_topics([&new], &options)
            .await?
            .remove(0)
            .map_err(|(_, code)| code.to_string())?;
        let (listed, partitions) = self.wait(&admin, true)?;
        let groups = admin.inner().fetch_group_list(None, PATIENCE)?;
        let ids = groups
            .groups()
            .iter()
            .map(|one| one.name().to_string())
            .collect::<Vec<_>>();
        let described = admin
            .inner()
            .fetch_group_list(Some(&self.group), PATIENCE)?;
        let about = described
            .groups()
            .first()
            .ok_or("the group was not described")?;
        let (id, members) = (about.name().to_string(), about.members().len());
        admin
            .delete_topics(&[&self.made], &options)
            .await?
            .remove(0)
            .map_err(|(_, code)| code.to_string())?;
        self.wait(&admin, false)?;
        Ok(
            json!({"listed": listed, "partitions": partitions, "groups": ids, "described": id, "members": members}),
        )
    }

    fn brokers(&self) -> Told {
        let known = self.consumer(&self.group)?.fetch_metadata(None, PATIENCE)?;
        let found = known
            .brokers()
            .iter()
            .map(|one| format!("{}:{}", one.host(), one.port()))
            .collect::<Vec<_>>();
        Ok(json!({"addresses": found}))
    }
}

/// Lets consumers receive until it is enough.
fn poll(
    from: &[&BaseConsumer],
    found: &mut [Words],
    enough: impl Fn(&[Words]) -> bool,
) -> Result<(), Box<dyn Error>> {
    let limit = Instant::now() + PATIENCE;
    while !enough(found) {
        if Instant::now() > limit {
            return Err(format!(
                "received only {:?}",
                found.iter().map(Vec::len).collect::<Vec<_>>()
            )
            .into());
        }
        for (one, received) in from.iter().zip(found.iter_mut()) {
            if let Some(Ok(message)) = one.poll(Duration::from_millis(100)) {
                let value =
                    String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
                received.push((message.topic().to_string(), value));
            }
        }
    }
    Ok(())
}

fn topics(found: &[Words]) -> BTreeSet<String> {
    found
        .iter()
        .flatten()
        .map(|(topic, _)| topic.clone())
        .collect()
}

fn values(found: &Words) -> Vec<&String> {
    found.iter().map(|(_, value)| value).collect()
}

fn distinct(found: &[Words]) -> BTreeSet<String> {
    found
        .iter()
        .flatten()
        .map(|(_, value)| value.clone())
        .collect()
}

fn tell(step: &str, told: Told) {
    let mut line = told.unwrap_or_else(|problem| json!({"error": problem.to_string()}));
    line["step"] = json!(step);
    println!("{line}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut given = std::env::args().skip(1);
    let mut next = || given.next().expect("five arguments");
    let names = Names {
        bootstrap: next(),
        topic: next(),
        made: next(),
        group: next(),
        transactional_id: next(),
    };
    let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
    tell(
        "client",
        Ok(json!({"version": format!("{} ({librdkafka})", version())})),
    );
    let only: Vec<String> = given.collect();
    if only.is_empty() {
        tell(
            "produce",
            names.produce("v").map(|topics| json!({"topics": topics})),
        );
        tell("consume", names.consume());
        tell("group", names.share());
        tell("transactions", names.transactions());
        tell("admin", names.admin().await);
        tell("brokers", names.brokers());
    }
    if only.iter().any(|one| one == "traffic") {
        tell("traffic", traffic::traffic(&names));
    }
}
