//! A second process that does what it is told, for every test program of this crate that has one.
//!
//! It is the test program run again with one test, or a program in another language. Orders go in by lines, and
//! answers come out by lines.
#![expect(clippy::print_stdout, reason = "answers come out by lines")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything here takes, shorter than the runner's patience.
pub(crate) const BOUND: Duration = Duration::from_secs(10);

/// What stands before an answer: a test runner's own words may stand before it on the same line.
const MARK: &str = "=> ";

/// Such a process, killed at the end.
#[derive(Debug)]
pub(crate) struct Told {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Told {
    /// Starts one that says when it is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, answers) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, answer)) = line.split_once(MARK)
                    && sender.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let told = Self {
            orders: child.stdin.take(),
            child,
            answers,
        };
        assert_eq!(told.answer(), "ready");
        told
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order without waiting for the answer.
    pub(crate) fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap();
        orders.flush().unwrap();
    }

    #[track_caller]
    pub(crate) fn answer(&self) -> String {
        self.heard_within(BOUND).expect("an answer in time")
    }

    /// Returns the next answer if it comes so soon.
    pub(crate) fn heard_within(&self, time: Duration) -> Option<String> {
        self.answers.recv_timeout(time).ok()
    }

    #[track_caller]
    pub(crate) fn does(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Tells it to end; it may be waited for.
    pub(crate) fn dismiss(&mut self) -> &mut Child {
        self.orders = None;
        &mut self.child
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let child = self.dismiss();
        let _killed = child.kill();
        let _reaped = child.wait();
    }
}

/// Lets a type of a test program, which has one, be used as such a process.
macro_rules! stands_for {
    ($name:ident) => {
        impl std::ops::Deref for $name {
            type Target = crate::told::Told;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }
    };
}
pub(crate) use stands_for;

/// The same program again, with the one test that obeys orders.
pub(crate) fn this_program() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(ORDERLY);
    command
}

/// What makes a test program obey orders.
pub(crate) const ORDERLY: [&str; 3] = ["--exact", "child::obeys_orders", "--nocapture"];

/// Answers the one who gave the order.
pub(crate) fn answer(text: &str) {
    println!("{MARK}{text}");
}
