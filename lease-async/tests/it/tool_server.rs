//! The tool server, over real connections: the incident that leases are for.

use std::sync::Arc;
use std::time::Duration;

use lease_async::SystemClock;
use lease_core::Clock as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::rig::{Rig, SOON, TTL};
use crate::tools;

struct Client {
    agent: &'static str,
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

impl Client {
    async fn connect(path: &std::path::Path, agent: &'static str) -> Self {
        let (read, write) = UnixStream::connect(path).await.unwrap().into_split();
        let lines = BufReader::new(read).lines();
        Self {
            agent,
            lines,
            write,
        }
    }

    async fn say(&mut self, call: &str) -> String {
        let line = format!("{} {call}\n", self.agent);
        self.write.write_all(line.as_bytes()).await.unwrap();
        self.lines.next_line().await.unwrap().unwrap()
    }
}

/// A socket in a folder of its own, which goes with it.
struct Socket(std::path::PathBuf);

impl Socket {
    fn new() -> Self {
        let name = format!("lease-async-{}", SystemClock::new().now().as_nanos());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("socket");
        Self(path)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.0.parent().unwrap()).unwrap();
    }
}

#[tokio::test]
async fn a_line_without_an_end_costs_only_its_own_connection() {
    let socket = Socket::new();
    let rig = Rig::still();
    let listener = UnixListener::bind(&socket.0).unwrap();
    let server = tokio::spawn(tools::serve(listener, rig.leases.clone(), Arc::default()));
    let mut endless = Client::connect(&socket.0, "ag-1").await;
    assert_eq!(endless.say("set menu open").await, "ok 1");
    let more = vec![b'x'; 1 << 20];
    // It is closed long before so many bytes are kept.
    let sends = async { while endless.write.write_all(&more).await.is_ok() {} };
    tokio::time::timeout(SOON, sends).await.unwrap();
    let mut other = Client::connect(&socket.0, "ag-2").await;
    assert_eq!(other.say("set menu shut").await, "ok 2");
    server.abort();
}

#[tokio::test]
async fn a_part_has_one_text_however_its_name_is_written() {
    let socket = Socket::new();
    let rig = Rig::still();
    let listener = UnixListener::bind(&socket.0).unwrap();
    let server = tokio::spawn(tools::serve(listener, rig.leases.clone(), Arc::default()));
    let mut first = Client::connect(&socket.0, "ag-1").await;
    let mut second = Client::connect(&socket.0, "ag-2").await;
    assert_eq!(first.say("set /menu open").await, "ok 1");
    assert_eq!(second.say("get menu").await, "ok open");
    assert!(second.say("set menu shut").await.starts_with("busy ag-1"));
    assert_eq!(first.say("release menu").await, "ok RELEASED");
    server.abort();
}

// A53
#[tokio::test]
async fn after_failed_calls_another_writer_gets_in_without_a_restart() {
    let socket = Socket::new();
    let rig = Rig::still();
    let listener = UnixListener::bind(&socket.0).unwrap();
    let server = tokio::spawn(tools::serve(listener, rig.leases.clone(), Arc::default()));
    let mut first = Client::connect(&socket.0, "ag-1").await;
    let mut second = Client::connect(&socket.0, "ag-1").await;

    assert_eq!(first.say("set viewport wide").await, "ok 1");
    assert_eq!(first.say("call viewport crash").await, "failed Half");
    assert_eq!(first.say("set viewport").await, "failed Invalid");
    // The same agent over another connection is another writer.
    let busy = second.say("set viewport tall").await;
    assert_eq!(busy, "busy ag-1, at most 30 s if it stays idle");
    assert_eq!(second.say("get viewport").await, "ok crash");
    assert_eq!(second.say("set menu open").await, "ok 2");

    // By idle term, observed by the request.
    rig.clock.advance(TTL + Duration::from_millis(1));
    assert_eq!(second.say("set viewport tall").await, "ok 3");
    // The first connection still stands, and gets in line like everybody.
    assert!(
        first
            .say("set viewport wide")
            .await
            .starts_with("busy ag-1")
    );
    assert_eq!(second.say("release viewport").await, "ok RELEASED");
    assert_eq!(first.say("set viewport wide").await, "ok 4");

    // By the end of its connection.
    drop(first);
    while rig
        .memory
        .list()
        .iter()
        .any(|view| view.resource.as_str() == "viewport")
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(second.say("set viewport tall").await, "ok 5");
    assert!(!server.is_finished());
    server.abort();
}
