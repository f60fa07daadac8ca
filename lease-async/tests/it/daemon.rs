//! The daemon of the example as a process of its own: killed, stopped, talked nonsense to.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use lease_async::SystemClock;
use lease_core::{AuthorityId, Clock as _, FenceGate, Fenced, FencingToken};

use crate::desk::{files, program};
use crate::rig::{SOON, ordered, pause};

/// Where a child of a test is to run the daemon.
const ORDER: &str = "LEASE_DAEMON_FOLDER";

/// This is the daemon, in a child of the tests below. In the run of all tests it has nothing to do.
#[test]
fn serves_in_the_folder_it_is_told() {
    if let Some(folder) = ordered(ORDER) {
        let folder = PathBuf::from(folder);
        program::run(&folder.join("socket"), &folder.join("documents")).unwrap();
    }
}

/// A folder of its own, with a daemon.
struct Desk {
    folder: PathBuf,
    daemon: Option<Daemon>,
}

struct Daemon {
    child: Child,
    input: Option<ChildStdin>,
    told: Receiver<String>,
}

impl Desk {
    fn new() -> Self {
        let name = format!("lease-desk-{}", SystemClock::new().now().as_nanos());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        fs::create_dir(folder.join("documents")).unwrap();
        let daemon = None;
        let mut desk = Self { folder, daemon };
        desk.start();
        desk
    }

    fn start(&mut self) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "daemon::serves_in_the_folder_it_is_told",
                "--nocapture",
            ])
            .env(ORDER, &self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, told) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The runner's own words may stand before the mark.
                if let Some((_, told)) = line.split_once("daemon: ")
                    && sender.send(told.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        let daemon = Daemon { child, input, told };
        self.daemon = Some(daemon);
        self.hears("ready");
    }

    fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().unwrap()
    }

    #[track_caller]
    fn hears(&mut self, what: &str) {
        let told = self.daemon().told.recv_timeout(SOON).expect("told in time");
        assert_eq!(told, what);
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.child.kill().unwrap();
        daemon.child.wait().unwrap();
    }

    /// Waits until it has ended, and says whether all was well.
    fn ends(&mut self) -> bool {
        let mut daemon = self.daemon.take().unwrap();
        let mut ended = None;
        for _ in 0..500 {
            ended = daemon.child.try_wait().unwrap();
            if ended.is_some() {
                break;
            }
            pause();
        }
        if ended.is_none() {
            daemon.child.kill().unwrap();
            daemon.child.wait().unwrap();
        }
        ended.is_some_and(|status| status.success())
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.folder.join("socket")).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Client(BufReader::new(stream))
    }

    fn client(&self, agent: &str) -> Client {
        let mut client = self.connect();
        assert_eq!(client.say(&format!("agent {agent}")), "ok");
        client
    }

    /// A document in its folder: the fence, and the text.
    fn document(&self, name: &str) -> (FenceGate, String) {
        let text = fs::read_to_string(self.folder.join("documents").join(name)).unwrap();
        let (line, rest) = text.split_at(text.find('\n').unwrap() + 1);
        (files::parsed(line).unwrap(), rest.to_owned())
    }

    /// What is on its way, with its size.
    fn unfinished(&self) -> Option<u64> {
        let mut entries = fs::read_dir(self.folder.join("documents")).unwrap();
        entries.find_map(|entry| {
            let entry = entry.unwrap();
            let new = entry.file_name().to_str().unwrap().starts_with(".new-");
            new.then(|| entry.metadata().map_or(0, |found| found.len()))
        })
    }

    fn names(&self) -> usize {
        fs::read_dir(self.folder.join("documents")).unwrap().count()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.child.kill().unwrap();
            daemon.child.wait().unwrap();
        }
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn say(&mut self, line: &str) -> String {
        self.send(format!("{line}\n").as_bytes());
        self.answer()
    }

    /// Writes as soon as nobody else has the document.
    fn writes(&mut self, line: &str) -> String {
        for _ in 0..500 {
            let answer = self.say(line);
            if !answer.starts_with("busy") {
                return answer;
            }
            pause();
        }
        panic!("busy for ever");
    }
}

fn waits(mut until: impl FnMut() -> bool) {
    assert!((0..500).any(|_| until() || {
        pause();
        false
    }));
}

#[test]
fn one_client_at_a_time_writes_a_document() {
    let desk = Desk::new();
    let (mut first, mut second) = (desk.client("a"), desk.client("b"));
    assert_eq!(first.say("write notes one"), "ok 1");
    assert_eq!(first.say("write notes two"), "ok 1");
    assert_eq!(second.say("write notes three"), "busy a");
    assert_eq!(second.say("write other three"), "ok 2");
    assert_eq!(second.say("health").split(',').next().unwrap(), "ok 2 held");
    assert_eq!(first.say("close notes"), "ok RELEASED");
    second.send(b"put notes 11\nsome\nlines\n");
    assert_eq!(second.answer(), "ok 3");
    assert_eq!(desk.document("notes").1, "some\nlines\n");
}

#[test]
fn a_writer_whose_session_is_gone_is_lost_or_fenced_and_writes_nothing() {
    let mut desk = Desk::new();
    let mut gone = desk.client("a");
    assert_eq!(gone.say("write notes first"), "ok 1");
    assert_eq!(gone.say("stall notes late"), "ok");
    assert_eq!(gone.say("later notes late"), "ok");
    drop(gone);
    let mut next = desk.client("b");
    assert_eq!(next.writes("write notes second"), "ok 2");
    assert_eq!(next.say("go"), "ok");
    let mut told = [(); 2].map(|()| desk.daemon().told.recv_timeout(SOON).unwrap());
    told.sort();
    let fenced = "slow notes 1 fenced FENCED: token is older than generation 2";
    assert_eq!(told, [fenced, "slow notes 1 lost"]);
    assert_eq!(desk.document("notes").1, "second");
    // Its own late writes are no others' business.
    assert_eq!(next.say("stall notes third"), "ok");
    assert_eq!(next.say("go"), "ok");
    desk.hears("slow notes 2 ok");
    assert_eq!(desk.document("notes").1, "third");
}

// A5
#[test]
fn a_daemon_killed_in_the_middle_of_a_write_leaves_the_document_before_it() {
    let mut desk = Desk::new();
    let mut client = desk.client("a");
    assert_eq!(client.say("write notes whole"), "ok 1");
    let before = fs::read(desk.folder.join("documents/notes")).unwrap();
    let (old, _) = desk.document("notes");
    client.send(b"put notes 2000000\n");
    client.send(&[b'x'; 1_000_000]);
    waits(|| desk.unfinished().is_some_and(|size| size > 1_000_000));
    desk.kill();
    assert_eq!(
        fs::read(desk.folder.join("documents/notes")).unwrap(),
        before
    );
    assert_eq!(desk.names(), 2);

    desk.start();
    assert_eq!(desk.names(), 1, "what was not finished is gone");
    let mut client = desk.client("a");
    client.send(b"read notes\n");
    assert_eq!(client.answer(), "ok 1 5");
    let mut text = [0; 5];
    client.0.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"whole");
    // The authority is another one, and counts from 1 again.
    client.send(b"put notes 3\nnew");
    assert_eq!(client.answer(), "ok 1");
    let (mut new, text) = desk.document("notes");
    assert_eq!(
        (text.as_str(), new.retired()),
        ("new", &[old.authority().unwrap()][..])
    );
    let late = old.current().unwrap();
    assert!(matches!(
        new.enter(&late),
        Err(Fenced::OtherAuthority { .. })
    ));
    let later = FencingToken {
        generation: late.generation.next().unwrap(),
        ..late
    };
    assert!(matches!(
        new.enter(&later),
        Err(Fenced::OtherAuthority { .. })
    ));
}

/// A text that shows whether all of it is there.
fn text(number: u64) -> String {
    format!("{number} ").repeat(5_000)
}

#[test]
fn whenever_a_daemon_is_killed_every_document_is_whole_and_none_is_older_than_was_answered() {
    let mut desk = Desk::new();
    let mut number = 0;
    let mut authorities: Vec<AuthorityId> = Vec::new();
    for round in 0..6 {
        let mut client = desk.client("a");
        let least = number + 1;
        let mut answered = 0;
        // The last one is on its way when the daemon is killed, and how far it came is chance.
        for _ in 0..5 + round {
            number += 1;
            client.send(format!("put notes {}\n", text(number).len()).as_bytes());
            client.send(text(number).as_bytes());
            if number >= least + 4 + round {
                break;
            }
            assert_eq!(client.answer(), "ok 1");
            answered = number;
        }
        for _ in 0..round {
            std::thread::yield_now();
        }
        desk.kill();
        let (gate, found) = desk.document("notes");
        let last: u64 = found.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(found, text(last));
        assert!(
            last == answered || last == number,
            "{last} of {answered}, {number}"
        );
        assert_eq!(gate.retired(), authorities);
        authorities.push(gate.authority().unwrap());
        desk.start();
    }
}

#[test]
fn it_ends_in_time_when_it_is_told_to_or_its_input_ends_though_a_client_stands_still() {
    for by_signal in [true, false] {
        let mut desk = Desk::new();
        let mut client = desk.client("a");
        assert_eq!(client.say("write notes whole"), "ok 1");
        client.send(b"put notes 2000000\nhalf of it");
        waits(|| desk.unfinished().is_some());
        if by_signal {
            let pid = desk.daemon().child.id().to_string();
            let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
            assert!(sent.unwrap().success());
        } else {
            desk.daemon().input.take().unwrap();
        }
        desk.hears("ends with clients in the middle of something");
        desk.hears("stops with 0 held");
        desk.hears("ended");
        assert!(desk.ends());
        assert_eq!(
            (desk.unfinished(), desk.document("notes").1.as_str()),
            (None, "whole")
        );
        assert!(!desk.folder.join("socket").exists());
        desk.start();
    }
}

#[test]
fn nonsense_costs_nobody_else_anything() {
    let mut desk = Desk::new();
    let mut sound = desk.client("a");
    assert_eq!(sound.say("write notes sound"), "ok 1");
    let long = [b'x'; 70_000];
    for bytes in [
        &b"\xff\xfe\n"[..],
        b"\0\n",
        b"\n",
        b"agent \n",
        b"write notes x\n",
        &long,
    ] {
        let mut client = desk.connect();
        // It may be gone before all of it was sent.
        drop(client.0.get_mut().write_all(bytes));
        let mut line = String::new();
        drop(client.0.read_line(&mut line));
        assert!(line.is_empty() || line.starts_with("wrong"), "{line}");
    }
    let mut client = desk.client("b");
    for line in [
        "write ../escape x",
        "write .new-0 x",
        "write .. x",
        "write a/b x",
        "write",
        "write  x",
        "dance notes",
        "close other",
        &format!("write {} x", "n".repeat(65)),
    ] {
        let answer = client.say(line);
        assert!(answer.starts_with("wrong"), "{line}: {answer}");
    }
    for line in [
        "put notes",
        "put other -1",
        "put other 99999999999",
        "put other 18446744073709551616",
    ] {
        let mut client = desk.client("b");
        let answer = client.say(line);
        assert!(answer.starts_with("wrong"), "{line}: {answer}");
        assert_eq!(client.answer(), "", "the connection has ended");
    }
    let crowd: Vec<_> = (0..200).map(|_| desk.connect()).collect();
    assert_eq!(sound.say("write notes still"), "ok 1");
    drop(crowd);
    assert_eq!(desk.names(), 1);
    desk.daemon().input.take().unwrap();
    desk.hears("stops with 0 held");
}

#[test]
fn a_document_whose_fence_is_unsound_is_left_as_it_is() {
    let desk = Desk::new();
    let nil = "00000000-0000-0000-0000-000000000000";
    let sound = format!("fence 1 {nil} 7 {nil} -\n");
    let unsound = [
        "",
        "a text\n",
        "fence 2\n",
        "fence 1 x 7 x -\n",
        &sound.replace(" 7 ", " 0 "),
        &sound.replace('-', "+"),
        &sound.replace(" -\n", &format!(" {nil}\n")),
        sound.trim_end(),
        &"x".repeat(2_000),
    ];
    let mut client = desk.client("a");
    for (number, text) in unsound.iter().enumerate() {
        let path = desk.folder.join(format!("documents/unsound-{number}"));
        fs::write(&path, text).unwrap();
        let answer = client.say(&format!("write unsound-{number} new"));
        let expected = "failed: the fence of the document is unsound";
        assert!(answer.starts_with(expected), "{text:?}: {answer}");
        assert_eq!(fs::read_to_string(&path).unwrap(), *text);
    }
}

#[test]
fn what_is_no_regular_file_is_no_document_and_nobody_waits_for_it() {
    let desk = Desk::new();
    let documents = desk.folder.join("documents");
    fs::create_dir(documents.join("folder")).unwrap();
    let fifo = Command::new("mkfifo").arg(documents.join("fifo")).status();
    assert!(fifo.unwrap().success());
    let _socket = UnixListener::bind(documents.join("listener")).unwrap();
    std::os::unix::fs::symlink("fifo", documents.join("link")).unwrap();
    let mut client = desk.client("a");
    for name in ["folder", "fifo", "listener", "link"] {
        for line in [format!("write {name} new"), format!("read {name}")] {
            let expected = "failed: the document is no regular file";
            assert_eq!(client.say(&line), expected, "{line}");
        }
    }
    assert_eq!(client.say("write notes one").split(' ').next(), Some("ok"));
    assert_eq!(desk.names(), 5);
}

#[test]
fn a_folder_has_one_daemon() {
    let mut desk = Desk::new();
    let second = program::run(&desk.folder.join("second"), &desk.folder.join("documents"));
    let refused = second.unwrap_err().to_string();
    assert!(refused.starts_with("another daemon"), "{refused}");
    // One that was killed does not stand in the way of the next.
    desk.kill();
    desk.start();
}
