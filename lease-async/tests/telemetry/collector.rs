//! A takeover, as a collector of another project reads it.

use tokio::runtime::Builder;

use crate::export::Transport;
use crate::otlp::{no_deaths, play};
use crate::rig::{Rotel, not_run};

/// What it prints of the takeover, one after the other.
const TAKEOVER: [&str; 4] = [
    "Name           : takeover writer_lease\n",
    "-> writer_lease.generation: Int(2)\n",
    "-> writer_lease.previous.generation: Int(1)\n",
    "-> Name: writer_lease.taken_over\n",
];

/// What it prints of each measurement that the story makes: its name, its unit, its kind.
const MEASURED: [(&str, &str, &str); 7] = [
    ("acquire.duration", "s", "Histogram"),
    ("active", "{lease}", "Sum"),
    ("decisions", "{decision}", "Sum"),
    ("fenced_writes", "{write}", "Sum"),
    ("hold.duration", "s", "Histogram"),
    ("liveness.verdicts", "{verdict}", "Sum"),
    ("waiting", "{waiter}", "Sum"),
];

#[test]
fn a_real_collector_reads_a_takeover() {
    let test = "collector::a_real_collector_reads_a_takeover";
    if no_deaths(test) {
        return;
    }
    for transport in [Transport::Grpc, Transport::Http] {
        let Some(rotel) = Rotel::start() else {
            not_run(test, "rotel", "there is no rotel-agent");
            return;
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let endpoint = match transport {
            Transport::Grpc => &rotel.grpc,
            Transport::Http => &rotel.http,
        };
        assert!(play(&runtime, transport, endpoint));
        // The last measurement it prints is the last by name.
        assert!(
            rotel.has("-> Name: writer_lease.waiting\n"),
            "{}",
            rotel.text()
        );
        assert!(rotel.has(TAKEOVER[3]), "{}", rotel.text());
        let text = rotel.text();
        let mut rest = &*text;
        for words in TAKEOVER {
            let (_, after) = rest
                .split_once(words)
                .unwrap_or_else(|| panic!("{words}: {text}"));
            rest = after;
        }
        for (name, unit, kind) in MEASURED {
            let (_, metric) = text
                .split_once(&format!("-> Name: writer_lease.{name}\n"))
                .unwrap();
            let head: Vec<&str> = metric.lines().take(3).collect();
            assert!(
                head.contains(&&*format!("-> Unit: {unit}")),
                "{name}: {head:?}"
            );
            assert!(
                head.contains(&&*format!("-> DataType: {kind}")),
                "{name}: {head:?}"
            );
        }
    }
}
