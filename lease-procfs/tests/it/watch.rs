//! The death watch and the kept process, on real processes.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use lease_core::Locality::{self, ManyMachines, ThisMachine};
use lease_procfs::{
    Death, DeathWatch, Found, KeptProcess, Kernel, Pid, ProcFs, ProcessIdentity, WatchError,
    WatchId, limits,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, Signal};

use crate::rig::{Kernels, Space, isolated, not_run, shown, take_every_descriptor};
use crate::sys::{self, Child};

const LONG: Option<Duration> = Some(Duration::from_secs(10));
const NOW: Option<Duration> = Some(Duration::ZERO);

fn running<T: std::fmt::Debug>(found: Result<Found<T>, WatchError>) -> T {
    match found.unwrap() {
        Found::Running(it) => it,
        Found::Gone(evidence) => panic!("it runs, but: {evidence:?}"),
    }
}

fn gone<T: std::fmt::Debug>(found: Result<Found<T>, WatchError>) -> String {
    match found.unwrap() {
        Found::Gone(evidence) => evidence.proof.into_owned(),
        Found::Running(it) => panic!("it is gone, but: {it:?}"),
    }
}

fn watch(watch: &DeathWatch, process: &ProcessIdentity) -> WatchId {
    running(watch.watch(process, ThisMachine))
}

/// Watches that can be made here: with inodes, and with ticks.
fn watches() -> Vec<(ProcFs, DeathWatch)> {
    let kernels = Kernels::new();
    let each = [kernels.pidfs, kernels.pidfd].into_iter();
    each.map(|proc| (proc.clone(), DeathWatch::new(&proc).unwrap()))
        .collect()
}

fn only(deaths: Vec<Death>) -> Death {
    let [death] = <[Death; 1]>::try_from(deaths).unwrap();
    death
}

#[test]
fn a_death_is_told_once_and_reaps_nobody() {
    for (proc, deaths) in watches() {
        let mut child = Child::idle();
        let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
        let id = watch(&deaths, &process);
        assert!(deaths.wait(NOW).unwrap().is_empty(), "it lives");

        child.signal(Signal::KILL);
        let death = only(deaths.wait(LONG).unwrap());
        assert_eq!((death.id(), death.process()), (id, &process));
        assert_eq!(shown(&death.verdict()), "dead: exited");
        // Its parent is told how it ended, and can still reap it.
        let ending = death.ending().unwrap();
        assert_eq!(ending.to_string(), "signal: 9 (SIGKILL)");
        assert!(!child.reap());

        assert!(deaths.wait(NOW).unwrap().is_empty(), "told once");
        assert!(!deaths.forget(id));
        assert_eq!(deaths.watched(), 0);
    }
}

/// A process that is no child of ours, and what its parent does with it.
struct Grandchild {
    parent: Child,
    orders: std::io::PipeWriter,
    answers: std::io::PipeReader,
    pid: Pid,
}

impl Grandchild {
    fn new() -> Self {
        let (mut hear, orders) = std::io::pipe().unwrap();
        let (mut answers, mut answer) = std::io::pipe().unwrap();
        let parent = Child::fork(move || {
            let mut order = || hear.read_exact(&mut [0]).unwrap();
            let (mut wait, go) = std::io::pipe().unwrap();
            let mut grandchild = Child::fork(|| {
                wait.read_exact(&mut [0]).unwrap();
                sys::exit_now(7);
            });
            answer
                .write_all(&grandchild.pid().get().to_ne_bytes())
                .unwrap();
            order();
            (&go).write_all(&[1]).unwrap();
            order();
            grandchild.reap();
            answer.write_all(&[1]).unwrap();
            order();
        });
        let mut pid = [0; 4];
        answers.read_exact(&mut pid).unwrap();
        Self {
            parent,
            orders,
            answers,
            pid: Pid::new(i32::from_ne_bytes(pid).into()).unwrap(),
        }
    }

    fn order(&mut self) {
        self.orders.write_all(&[1]).unwrap();
    }
}

#[test]
fn a_stranger_is_watched_and_tells_how_it_ended_once_it_was_reaped() {
    for (proc, deaths) in watches() {
        let mut stranger = Grandchild::new();
        let process = ProcessIdentity::of(&proc, stranger.pid).unwrap();
        watch(&deaths, &process);
        stranger.order();
        let death = only(deaths.wait(LONG).unwrap());
        assert_eq!(death.process(), &process);
        assert_eq!(death.ending(), None, "exited, not reaped, not our child");

        stranger.order();
        stranger.answers.read_exact(&mut [0]).unwrap();
        match death.ending() {
            Some(ending) => assert_eq!(ending.code(), Some(7)),
            None => not_run(
                "watch::a_stranger_is_watched_and_tells_how_it_ended_once_it_was_reaped",
                "pidfd-exit",
                "the kernel keeps no ending for a pidfd",
            ),
        }
        stranger.order();
        assert!(stranger.parent.reap());
    }
}

// B12
#[test]
fn who_is_gone_already_is_told_at_once_and_takes_no_descriptor() {
    for (proc, deaths) in watches() {
        let mut child = Child::idle();
        let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
        child.kill();
        assert_eq!(gone(deaths.watch(&process, ThisMachine)), "exited");
        child.reap();
        assert_eq!(gone(deaths.watch(&process, ThisMachine)), "no_such_process");
        let mut other_boot = process;
        other_boot.boot_id = "351d7b06-ce56-4437-8f88-900d8f613d51".parse().unwrap();
        assert_eq!(gone(deaths.watch(&other_boot, ThisMachine)), "other_boot");
        assert_eq!(deaths.watched(), 0);
        assert!(deaths.wait(NOW).unwrap().is_empty());
    }
}

#[test]
fn a_number_that_came_back_is_never_watched_for_its_first_owner() {
    let name = "watch::a_number_that_came_back_is_never_watched_for_its_first_owner";
    isolated(name, Space::Pid, || {
        let pid = Pid::new(4_242).unwrap();
        for (proc, deaths) in watches() {
            let spawn = || Child::idle_at(pid).map_err(|error| ("set-tid", error.to_string()));
            let mut first = spawn()?;
            let before = ProcessIdentity::of(&proc, pid).unwrap();
            let kept = running(KeptProcess::open(&proc, &before, ThisMachine));
            first.kill();
            first.reap();
            let second = spawn()?;
            let after = ProcessIdentity::of(&proc, pid).unwrap();
            assert_eq!(gone(deaths.watch(&before, ThisMachine)), "pid_recycled");
            assert_eq!(shown(&kept.verdict()), "dead: exited");
            let id = watch(&deaths, &after);
            assert!(deaths.wait(NOW).unwrap().is_empty(), "the second one lives");
            second.kill();
            assert_eq!(only(deaths.wait(LONG).unwrap()).id(), id);
        }
        Ok(())
    });
}

#[test]
fn a_forgotten_process_is_not_told_and_its_id_is_not_given_again() {
    let (proc, deaths) = watches().remove(0);
    let child = Child::idle();
    let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
    let first = watch(&deaths, &process);
    assert!(deaths.forget(first));
    assert!(!deaths.forget(first));
    let second = watch(&deaths, &process);
    let third = watch(&deaths, &process);
    assert!(first < second && second < third);
    // Also when it died before it was forgotten.
    child.kill();
    assert!(deaths.forget(second));
    assert_eq!(only(deaths.wait(LONG).unwrap()).id(), third);
    assert!(deaths.wait(NOW).unwrap().is_empty());
}

#[test]
fn stopped_or_without_its_leader_thread_is_not_a_death() {
    let (proc, deaths) = watches().remove(0);
    let (mut orders, mut give) = std::io::pipe().unwrap();
    let child = Child::fork(|| {
        std::thread::spawn(sys::wait_for_ever);
        orders.read_exact(&mut [0]).unwrap();
        sys::exit_this_thread();
    });
    let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
    let kept = running(KeptProcess::open(&proc, &process, ThisMachine));
    watch(&deaths, &process);
    child.signal(Signal::STOP);
    crate::live::wait_for_state(child.pid(), b'T');
    assert!(deaths.wait(NOW).unwrap().is_empty());
    child.signal(Signal::CONT);
    give.write_all(&[1]).unwrap();
    crate::live::wait_for_state(child.pid(), b'Z');
    assert!(deaths.wait(NOW).unwrap().is_empty());
    assert!(shown(&kept.verdict()).starts_with("alive: running"));
    child.signal(Signal::KILL);
    assert_eq!(only(deaths.wait(LONG).unwrap()).process(), &process);
    assert_eq!(shown(&kept.verdict()), "dead: exited");
}

#[test]
fn a_call_from_another_thread_ends_a_wait() {
    let (_proc, deaths) = watches().remove(0);
    // Before the wait, twice: one wait ends, and the next one lasts.
    deaths.wake().unwrap();
    deaths.wake().unwrap();
    assert!(deaths.wait(LONG).unwrap().is_empty());
    assert!(!is_readable(&deaths));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| deaths.wait(None).unwrap().len());
        deaths.wake().unwrap();
        assert_eq!(waiting.join().unwrap(), 0);
    });
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_not_when_a_signal_comes() {
    let mut waiting = Child::fork(|| {
        sys::be_interrupted_by_usr1();
        let (proc, deaths) = watches().remove(0);
        let own = rustix::process::getpid();
        let (mut wait, go) = std::io::pipe().unwrap();
        let interrupter = Child::fork(|| {
            for _ in 0..50 {
                rustix::process::kill_process(own, Signal::USR1).unwrap();
                crate::live::nap();
            }
            (&go).write_all(&[1]).unwrap();
            sys::wait_for_ever();
        });
        let process = ProcessIdentity::of(&proc, interrupter.pid()).unwrap();
        watch(&deaths, &process);
        assert!(
            deaths
                .wait(Some(Duration::from_millis(20)))
                .unwrap()
                .is_empty()
        );
        // Each signal ends the system call, and none the wait.
        let killer = Child::fork(|| {
            wait.read_exact(&mut [0]).unwrap();
            interrupter.signal(Signal::KILL);
            sys::wait_for_ever();
        });
        assert_eq!(only(deaths.wait(LONG).unwrap()).process(), &process);
        drop(killer);
    });
    assert!(waiting.reap(), "the child's assertions hold");
}

#[test]
fn a_process_watched_by_another_thread_ends_a_wait() {
    let (proc, deaths) = watches().remove(0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| only(deaths.wait(LONG).unwrap()).id());
        let child = Child::idle();
        let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
        let id = watch(&deaths, &process);
        child.kill();
        assert_eq!(waiting.join().unwrap(), id);
    });
}

/// Asks as an event loop does.
fn is_readable(deaths: &DeathWatch) -> bool {
    let mut fds = [PollFd::new(&deaths, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
}

#[test]
fn an_event_loop_sees_deaths_and_calls_until_they_are_fetched() {
    let (proc, deaths) = watches().remove(0);
    let child = Child::idle();
    let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
    watch(&deaths, &process);
    assert!(!is_readable(&deaths));
    child.kill();
    assert!(is_readable(&deaths) && is_readable(&deaths));
    assert_eq!(deaths.wait(NOW).unwrap().len(), 1);
    assert!(!is_readable(&deaths));
    deaths.wake().unwrap();
    assert!(is_readable(&deaths));
    assert_eq!(deaths.wait(NOW).unwrap().len(), 0);
    assert!(!is_readable(&deaths));
}

#[test]
fn each_of_many_deaths_is_told_to_exactly_one_of_many_waiters() {
    let (proc, deaths) = watches().remove(0);
    let children: Vec<_> = (0..150).map(|_| Child::idle()).collect();
    let ids: BTreeSet<_> = children
        .iter()
        .map(|child| watch(&deaths, &ProcessIdentity::of(&proc, child.pid()).unwrap()))
        .collect();
    let told = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while deaths.watched() > 0 {
                    let some = deaths.wait(Some(Duration::from_millis(20))).unwrap();
                    told.lock().unwrap().extend(some.iter().map(Death::id));
                }
            });
        }
        drop(children);
    });
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), ids.len(), "none twice");
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), ids);

    // All at once: more than one look of the epoll has room for.
    let children: Vec<_> = (0..150).map(|_| Child::idle()).collect();
    for child in &children {
        watch(&deaths, &ProcessIdentity::of(&proc, child.pid()).unwrap());
    }
    drop(children);
    assert_eq!(deaths.wait(NOW).unwrap().len(), 150);
}

/// Counts this process's descriptors; its own reading takes one each time.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn no_descriptor_is_left_behind() {
    // In a process of its own: other tests open descriptors, too.
    let mut counting = Child::fork(|| {
        let proc = ProcFs::system();
        let before = descriptors();
        {
            let deaths = DeathWatch::new(&proc).unwrap();
            assert_eq!(descriptors(), before + 2);
            for round in 0..50 {
                let child = Child::idle();
                let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
                let forgotten = watch(&deaths, &process);
                watch(&deaths, &process);
                assert_eq!(descriptors(), before + 4);
                assert!(deaths.forget(forgotten));
                assert_eq!(descriptors(), before + 3);
                drop(child);
                let told = deaths.wait(LONG).unwrap();
                assert_eq!(descriptors(), before + 3, "the death keeps it");
                drop(told);
                assert_eq!(descriptors(), before + 2, "round {round}");
                gone(deaths.watch(&process, ThisMachine));
                let unseen = deaths.watch(&elsewhere(&process), ThisMachine);
                assert!(matches!(unseen, Err(WatchError::Unseen { .. })));
                assert_eq!(descriptors(), before + 2, "round {round}");
            }
            let own = ProcessIdentity::own(&proc).unwrap();
            watch(&deaths, &own);
            drop(running(KeptProcess::open(&proc, &own, ThisMachine)));
        }
        assert_eq!(descriptors(), before, "dropped with somebody still watched");
    });
    assert!(counting.reap(), "the child's assertions hold");
}

/// The same record, of a pid namespace that nobody knows.
fn elsewhere(process: &ProcessIdentity) -> ProcessIdentity {
    let mut record = *process;
    record.pid_namespace = None;
    record
}

// fault B06
#[test]
fn without_descriptors_a_watch_says_so_and_forgets_nobody() {
    let mut starving = Child::fork(|| {
        let proc = ProcFs::system();
        let deaths = DeathWatch::new(&proc).unwrap();
        let child = Child::idle();
        let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
        let id = watch(&deaths, &process);
        let taken = take_every_descriptor();
        let refused = [
            deaths.watch(&process, ThisMachine).unwrap_err(),
            KeptProcess::open(&proc, &process, ThisMachine).unwrap_err(),
            DeathWatch::new(&proc).unwrap_err(),
        ];
        for refused in refused {
            let WatchError::Exhausted { source } = refused else {
                panic!("{refused}");
            };
            assert_eq!(
                source.raw_os_error(),
                Some(rustix::io::Errno::MFILE.raw_os_error())
            );
        }
        // Who is gone is gone without a descriptor, too.
        let mut other = process;
        let mut short = Child::fork(|| {});
        other.pid = short.pid();
        short.reap();
        assert_eq!(gone(deaths.watch(&other, ThisMachine)), "no_such_process");
        child.kill();
        assert_eq!(only(deaths.wait(LONG).unwrap()).id(), id);
        drop(taken);
        gone(deaths.watch(&process, ThisMachine));
    });
    assert!(starving.reap(), "the child's assertions hold");
}

#[test]
fn one_watch_takes_so_many_processes_and_no_more() {
    let name = "watch::one_watch_takes_so_many_processes_and_no_more";
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let needed = u64::try_from(limits::WATCHES).unwrap() + 64;
    if most.is_some_and(|most| most < needed) {
        return not_run(
            name,
            "descriptors",
            &format!("at most {most:?} may be open"),
        );
    }
    let mut counting = Child::fork(|| {
        let many = Rlimit {
            current: Some(needed),
            maximum: most,
        };
        rustix::process::setrlimit(Resource::Nofile, many).unwrap();
        let proc = ProcFs::system();
        let deaths = DeathWatch::new(&proc).unwrap();
        let own = ProcessIdentity::own(&proc).unwrap();
        let ids: Vec<_> = (0..limits::WATCHES).map(|_| watch(&deaths, &own)).collect();
        let before = descriptors();
        let full = deaths.watch(&own, ThisMachine).unwrap_err();
        assert_eq!(full.to_string(), "4096 processes are watched already");
        assert_eq!(descriptors(), before);
        assert!(deaths.forget(ids[7]));
        watch(&deaths, &own);
        assert_eq!(deaths.watched(), limits::WATCHES);
    });
    assert!(counting.reap(), "the child's assertions hold");
}

#[test]
fn a_forked_childs_copy_is_inert_and_the_parents_goes_on() {
    let (proc, deaths) = watches().remove(0);
    let watched = Child::idle();
    let process = ProcessIdentity::of(&proc, watched.pid()).unwrap();
    let kept = running(KeptProcess::open(&proc, &process, ThisMachine));
    let id = watch(&deaths, &process);
    let mut forked = Child::fork(|| {
        let own = ProcessIdentity::own(&proc).unwrap();
        let refused = [
            deaths.watch(&own, ThisMachine).unwrap_err(),
            deaths.wait(NOW).unwrap_err(),
            deaths.wake().unwrap_err(),
        ];
        for refused in refused {
            assert!(matches!(refused, WatchError::Inherited), "{refused}");
        }
        assert!(!deaths.forget(id));
        assert_eq!(deaths.watched(), 0);
        assert!(shown(&kept.verdict()).starts_with("alive: running"));
        // A watch of its own works.
        let mine = DeathWatch::new(&proc).unwrap();
        watch(&mine, &process);
        drop(deaths);
    });
    assert!(forked.reap(), "the child's assertions hold");
}

#[test]
fn what_a_forked_child_has_open_does_not_keep_a_forgotten_watch_ringing() {
    let (proc, deaths) = watches().remove(0);
    let watched = Child::idle();
    let process = ProcessIdentity::of(&proc, watched.pid()).unwrap();
    let id = watch(&deaths, &process);
    let (mut wait, go) = std::io::pipe().unwrap();
    // It has a copy of the pidfd, so closing ours does not take it out of the epoll.
    let mut forked = Child::fork(|| wait.read_exact(&mut [0]).unwrap());
    assert!(deaths.forget(id));
    watched.kill();
    assert!(!is_readable(&deaths));
    let second = watch(&deaths, &ProcessIdentity::own(&proc).unwrap());
    assert!(deaths.wait(NOW).unwrap().is_empty());
    assert!(deaths.forget(second));
    (&go).write_all(&[1]).unwrap();
    assert!(forked.reap());
}

#[test]
fn no_descriptor_outlives_an_exec() {
    let (proc, deaths) = watches().remove(0);
    let own = ProcessIdentity::own(&proc).unwrap();
    watch(&deaths, &own);
    let _kept = running(KeptProcess::open(&proc, &own, ThisMachine));
    let listed = std::process::Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("/proc/"), "it lists its own: {listed}");
    for kind in ["eventpoll", "eventfd", "pidfd"] {
        assert!(!listed.contains(kind), "{listed}");
    }
}

#[test]
fn who_cannot_be_seen_is_not_watched() {
    let kernels = Kernels::new();
    let child = Child::idle();
    let unseen = |proc: &ProcFs, record: &ProcessIdentity, locality: Locality| {
        let refused = DeathWatch::new(proc)
            .unwrap()
            .watch(record, locality)
            .unwrap_err();
        let kept = KeptProcess::open(proc, record, locality).unwrap_err();
        assert_eq!(refused.to_string(), kept.to_string());
        refused.to_string()
    };
    for proc in [&kernels.pidfs, &kernels.pidfd] {
        let process = ProcessIdentity::of(proc, child.pid()).unwrap();
        assert_eq!(
            unseen(proc, &elsewhere(&process), ThisMachine),
            "the process cannot be seen: pid_namespace_unknown"
        );
        let mut record = process;
        record.boot_id = "351d7b06-ce56-4437-8f88-900d8f613d51".parse().unwrap();
        assert_eq!(
            unseen(proc, &record, ManyMachines),
            "the process cannot be seen: another_machine"
        );
        record = process;
        record.boot_trusted = false;
        assert_eq!(
            unseen(proc, &record, ThisMachine),
            "the process cannot be seen: boot_id_untrusted"
        );
    }
    let process = ProcessIdentity::of(&kernels.stat, child.pid()).unwrap();
    assert_eq!(
        unseen(&kernels.stat, &process, ThisMachine),
        "processes cannot be watched on this system"
    );
    let missing = ProcFs::at("/nowhere", Kernel::detect());
    assert_eq!(
        unseen(&missing, &process, ThisMachine),
        "the process cannot be seen: proc_missing"
    );
}

#[test]
fn a_kept_process_is_polled_like_any_descriptor() {
    let proc = ProcFs::system();
    let child = Child::idle();
    let process = ProcessIdentity::of(&proc, child.pid()).unwrap();
    let kept = running(KeptProcess::open(&proc, &process, ThisMachine));
    assert_eq!(kept.process(), &process);
    assert_eq!(kept.ending(), None);
    let now = rustix::event::Timespec::default();
    let readable = || {
        let mut fds = [PollFd::new(&kept, PollFlags::IN)];
        poll(&mut fds, Some(&now)).unwrap()
    };
    assert_eq!(readable(), 0);
    child.kill();
    assert_eq!(readable(), 1);
    assert_eq!(shown(&kept.verdict()), "dead: exited");
    assert_eq!(
        kept.ending().unwrap().to_string(),
        "signal: 9 (SIGKILL)",
        "told to its parent before it is reaped"
    );
    let _file = kept.as_fd();
}

#[test]
fn a_wait_of_many_days_is_ended_by_a_call() {
    let deaths = DeathWatch::new(&ProcFs::system()).unwrap();
    for days in [60, u64::MAX / 86_400] {
        deaths.wake().unwrap();
        let time = Duration::from_secs(days * 86_400);
        assert!(deaths.wait(Some(time)).unwrap().is_empty());
    }
}

#[test]
fn many_days_are_waited_for_without_what_only_newer_kernels_have() {
    let name = "watch::many_days_are_waited_for_without_what_only_newer_kernels_have";
    let waited = std::process::Command::new("strace")
        .args(["-f", "-o", "/dev/null"])
        .args(["-e", "inject=epoll_pwait2:error=ENOSYS"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "watch::a_wait_of_many_days_is_ended_by_a_call"])
        .output();
    let waited = match waited {
        Ok(waited) => waited,
        Err(error) => return not_run(name, "strace", &error.to_string()),
    };
    let words = String::from_utf8_lossy(&waited.stderr);
    if words.contains("strace: ") {
        return not_run(name, "strace", words.lines().last().unwrap_or("refused"));
    }
    let told = String::from_utf8_lossy(&waited.stdout);
    assert!(told.contains("1 passed"), "{told}\n{words}");
}

// fault B06
#[test]
fn a_descriptor_that_somebody_closed_is_no_death() {
    let mut daemon = Child::fork(|| {
        let proc = ProcFs::system();
        let holder = Child::idle();
        let process = ProcessIdentity::of(&proc, holder.pid()).unwrap();
        let kept =
            std::mem::ManuallyDrop::new(running(KeptProcess::open(&proc, &process, ThisMachine)));
        // As programs do that go into the background: every descriptor, whoever owns it.
        sys::close_whoever_owns_it(kept.as_fd());
        assert_eq!(shown(&kept.verdict()), "unknown: lookup_failed");
    });
    assert!(daemon.reap(), "the child's assertions hold");
}
