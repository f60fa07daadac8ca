//! Looks that fail: errors that strace puts in the kernel's place, files of `/proc` under mounts, and
//! no `/proc` at all.

use std::io::Write as _;
use std::process::Command;

use lease_core::Locality::ThisMachine;
use lease_procfs::{
    DescribeError, Found, KeptProcess, Kernel, Pid, ProcFs, ProcessIdentity, WatchError,
};
use rustix::mount::{MountFlags, mount, mount_bind};

use crate::rig::{Kernels, Space, has_pidfs, isolated, judge, not_run};
use crate::sys::Child;

/// What the look of [`a_live_process_is_judged`] is made with.
const BY: [&str; 3] = ["by-inode", "by-ticks", "by-stat"];

fn kernel(by: &str) -> ProcFs {
    // Namespaces are known by number where the kernel gives one, so that pid 1 is not read.
    let kernel = Kernel::detect();
    let kernel = match by {
        "by-ticks" => kernel.without_pidfs(),
        "by-stat" => kernel.without_pidfd(),
        _ => kernel,
    };
    ProcFs::at("/proc", kernel)
}

/// Judges one process and prints the verdict. It is a program for the other tests, which name the
/// process and the way; alone it judges a child of its own.
#[test]
fn a_live_process_is_judged() {
    let words: Vec<_> = std::env::args().collect();
    let by = BY
        .into_iter()
        .find(|by| words.iter().any(|word| word == by));
    let named = words.iter().find_map(|word| word.strip_prefix("pid-"));
    let child = Child::idle();
    let pid = named.map_or_else(|| child.pid(), |pid| pid.parse().unwrap());
    let proc = kernel(by.unwrap_or("by-inode"));
    let record = ProcessIdentity::of(&proc, pid).unwrap();
    let verdict = judge(&proc, &record);
    std::io::stdout()
        .write_all(format!("<{verdict}>").as_bytes())
        .unwrap();
    if by.is_none() {
        assert!(verdict.starts_with("alive: running"), "{verdict}");
    }
}

/// Lets strace answer a system call of the look with an error, and returns the verdict.
///
/// `calls` says which: `pidfd_open`, or a call on the holder's `stat`. Making the kernel known and
/// describing the holder take some calls before, which are left alone.
fn judged_under(
    test: &str,
    by: &str,
    (calls, from): (&str, u32),
    errno: &str,
    holder: Pid,
) -> Option<String> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null"]);
    if calls != "pidfd_open" && calls != "ppoll" {
        strace.args(["-P", &format!("/proc/{holder}/stat")]);
    }
    let inject = format!("inject={calls}:error={errno}:when={from}+");
    let judged = strace
        .args(["-e", &inject])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "faults::a_live_process_is_judged", "--nocapture"])
        .args([by, &format!("pid-{holder}")])
        .output();
    let judged = match judged {
        Ok(judged) => judged,
        Err(error) => {
            not_run(&format!("faults::{test}"), "strace", &error.to_string());
            return None;
        }
    };
    let text = String::from_utf8(judged.stdout).unwrap();
    let words = String::from_utf8_lossy(&judged.stderr);
    if !judged.status.success() && words.contains("strace: ") {
        let last = words.lines().last().unwrap_or("refused");
        not_run(&format!("faults::{test}"), "strace", last);
        return None;
    }
    let verdict = text
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'));
    Some(
        verdict
            .unwrap_or_else(|| panic!("{text}\n{words}"))
            .0
            .to_owned(),
    )
}

// B7
// fault B06
#[test]
fn an_error_of_pidfd_open_says_nothing_about_a_live_holder() {
    let test = "an_error_of_pidfd_open_says_nothing_about_a_live_holder";
    let holder = Child::idle();
    // The first call makes the kernel known, the second describes.
    let third = ("pidfd_open", 3);
    let by_ticks = "alive: running_by_start_ticks";
    let answers = [
        ("EACCES", "unknown: lookup_denied"),
        ("EPERM", "unknown: lookup_denied"),
        ("EMFILE", "unknown: lookup_exhausted"),
        ("ENFILE", "unknown: lookup_exhausted"),
        ("ENOMEM", "unknown: lookup_exhausted"),
        ("EIO", "unknown: lookup_failed"),
        ("EINTR", "unknown: lookup_failed"),
        ("EINVAL", "unknown: lookup_failed"),
        // Forbidden since: the older ways see it.
        ("ENOSYS", by_ticks),
    ];
    for (errno, expected) in answers {
        let Some(seen) = judged_under(test, "by-inode", third, errno, holder.pid()) else {
            return;
        };
        assert_eq!(seen, expected, "{errno}");
    }
}

// B7
// fault B06
#[test]
fn an_error_of_stat_says_nothing_about_a_live_holder() {
    let test = "an_error_of_stat_says_nothing_about_a_live_holder";
    let holder = Child::idle();
    let answers = [
        ("EACCES", "unknown: lookup_denied"),
        ("ENOENT", "unknown: hidden"),
        ("ESRCH", "unknown: hidden"),
        ("EMFILE", "unknown: lookup_exhausted"),
        ("ENOMEM", "unknown: lookup_exhausted"),
        ("EIO", "unknown: lookup_failed"),
    ];
    for (by, first) in [("by-ticks", 2), ("by-stat", 3)] {
        // `by-stat` reads twice when it describes: before and after the tick is over.
        for (errno, expected) in answers {
            for calls in ["open,openat", "read"] {
                let Some(seen) = judged_under(test, by, (calls, first), errno, holder.pid()) else {
                    return;
                };
                assert_eq!(seen, expected, "{by}, {calls}: {errno}");
            }
        }
    }
}

// fault B06
#[test]
fn an_error_of_poll_says_nothing_about_a_live_holder() {
    let test = "an_error_of_poll_says_nothing_about_a_live_holder";
    let holder = Child::idle();
    for by in ["by-inode", "by-ticks"] {
        for errno in ["ENOMEM", "EINTR", "EIO"] {
            // The first call is made when it describes.
            let Some(seen) = judged_under(test, by, ("ppoll", 2), errno, holder.pid()) else {
                return;
            };
            assert_eq!(seen, "unknown: lookup_failed", "{by}: {errno}");
        }
    }
}

// B7, B8
// fault B06
#[test]
fn a_stat_that_another_file_covers_says_nothing_about_a_live_holder() {
    let name = "faults::a_stat_that_another_file_covers_says_nothing_about_a_live_holder";
    isolated(name, Space::Pid, || {
        let holder = Child::idle();
        let mut gone = Child::idle();
        let kernels = Kernels::new();
        let records = kernels
            .each()
            .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap());
        let stat = format!("/proc/{}/stat", holder.pid());
        // The memory of a process starts where nothing is mapped, and ends with it. The names of
        // the kernel are no stat line.
        let covers = [
            ("/proc/1/mem".to_owned(), "unknown: lookup_failed"),
            ("/proc/version".to_owned(), "unknown: stat_malformed"),
            (format!("/proc/{}/mem", gone.pid()), "unknown: hidden"),
        ];
        for (file, expected) in covers {
            mount_bind(file.as_str(), stat.as_str())
                .map_err(|errno| ("proc-mount", errno.to_string()))?;
            if file.contains(&gone.pid().to_string()) {
                gone.kill();
                gone.reap();
            }
            for (proc, record) in kernels.each().iter().zip(&records).skip(1) {
                assert_eq!(judge(proc, record), expected, "{file}");
                let refused = ProcessIdentity::of(proc, holder.pid()).unwrap_err();
                assert!(
                    !matches!(refused, DescribeError::NotRunning { .. }),
                    "{file}: {refused}"
                );
            }
            if Kernel::detect().pidfs {
                assert_eq!(judge(&kernels.pidfs, &records[0]), "alive: running");
            }
            rustix::mount::unmount(stat.as_str(), rustix::mount::UnmountFlags::DETACH)
                .map_err(|errno| ("proc-mount", errno.to_string()))?;
        }
        for (proc, record) in kernels.each().iter().zip(&records) {
            assert!(judge(proc, record).starts_with("alive: running"));
        }
        Ok(())
    });
}

// B3
// fault B06
#[test]
fn without_proc_nothing_is_known_but_what_was_known_before() {
    let name = "faults::without_proc_nothing_is_known_but_what_was_known_before";
    if !has_pidfs(name) {
        return;
    }
    isolated(name, Space::Pid, || {
        let holder = Child::idle();
        let before = Kernels::new();
        let records = before
            .each()
            .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap());
        mount("none", "/proc", "tmpfs", MountFlags::empty(), None)
            .map_err(|errno| ("tmpfs", errno.to_string()))?;
        for (proc, record) in Kernels::new().each().iter().zip(&records) {
            assert_eq!(judge(proc, record), "unknown: proc_missing");
            let refused = ProcessIdentity::of(proc, holder.pid()).unwrap_err();
            assert_eq!(refused.to_string(), "boot id cannot be read");
            let kept = KeptProcess::open(proc, record, ThisMachine).unwrap_err();
            assert!(matches!(kept, WatchError::Unseen { .. }), "{kept}");
        }
        // A process that looked before goes on by inode; ticks it cannot read any more.
        let seen: Vec<_> = before
            .each()
            .iter()
            .zip(&records)
            .map(|(proc, record)| judge(proc, record))
            .collect();
        assert_eq!(
            seen,
            ["alive: running", "unknown: hidden", "unknown: hidden"]
        );
        let kept = KeptProcess::open(&before.pidfs, &records[0], ThisMachine).unwrap();
        let Found::Running(kept) = kept else {
            panic!("it runs: {kept:?}");
        };
        holder.kill();
        assert_eq!(kept.verdict().name(), "dead");
        assert_eq!(judge(&before.pidfs, &records[0]), "dead: exited");
        Ok(())
    });
}

// B3, B7
// fault B06
#[test]
fn what_cannot_be_read_for_a_while_is_read_later() {
    let mut starving = Child::fork(|| {
        let holder = Child::idle();
        let record = ProcessIdentity::of(&ProcFs::system(), holder.pid()).unwrap();
        let kernel = Kernel::detect();
        let taken = crate::rig::take_every_descriptor();
        // Made at a bad moment, and kept for as long as the program runs.
        let proc = ProcFs::system();
        assert!(judge(&proc, &record).starts_with("unknown"));
        ProcessIdentity::own(&proc).unwrap_err();
        drop(taken);
        assert_eq!(proc.kernel(), kernel);
        assert!(judge(&proc, &record).starts_with("alive"));
        ProcessIdentity::own(&proc).unwrap();
        holder.kill();
        assert_eq!(judge(&proc, &record).split(':').next(), Some("dead"));
    });
    assert!(starving.reap(), "the child's assertions hold");
}

/// Makes sure that a look ends, whatever it says.
fn ends<T: Send + 'static>(what: &str, look: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(look()));
    let long = std::time::Duration::from_secs(10);
    told.recv_timeout(long)
        .unwrap_or_else(|_| panic!("{what} hangs"))
}

// B7
#[test]
fn a_pipe_with_a_name_in_the_place_of_proc_keeps_nobody_waiting() {
    let place = crate::crew::Place::new("named-pipes");
    let pipe = |name: &str| {
        let path = place.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    };
    let root = pipe("root");
    ends("a root", move || {
        let target = lease_procfs::TargetPath::new("/x").unwrap();
        let pass = lease_procfs::Pass::new(&ProcFs::at(root, Kernel::detect()));
        pass.users_of(&target, &lease_procfs::Exclusion::nobody())
            .unwrap_err();
    });
    pipe("proc/sys/kernel/random/boot_id");
    pipe("proc/self/status");
    let tree = place.join("proc");
    ends("a tree", move || {
        ProcessIdentity::own(&ProcFs::at(tree, Kernel::detect())).unwrap_err();
    });
}

// B7
// fault B06
#[test]
fn a_pipe_with_a_name_over_what_is_read_of_a_holder_keeps_nobody_waiting() {
    let name = "faults::a_pipe_with_a_name_over_what_is_read_of_a_holder_keeps_nobody_waiting";
    isolated(name, Space::Pid, || {
        let holder = Child::idle();
        let kernels = Kernels::new();
        let records = kernels
            .each()
            .map(|proc| ProcessIdentity::of(proc, holder.pid()).unwrap());
        let place = crate::crew::Place::new("pipe-over-stat");
        let pipe = place.join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // With somebody at the other end there is something to wait for.
        let writer = || std::fs::File::options().read(true).write(true).open(&pipe);
        for file in ["stat", "status", "maps", "mountinfo"] {
            let point = format!("/proc/{}/{file}", holder.pid());
            mount_bind(&pipe, &point).unwrap();
            for _other_end in [None, Some(writer().unwrap())] {
                for (proc, record) in kernels.each().iter().zip(records) {
                    let proc = ProcFs::clone(proc);
                    let seen = ends(file, move || {
                        let target = lease_procfs::TargetPath::new("/x").unwrap();
                        let pass = lease_procfs::Pass::new(&proc);
                        let nobody = lease_procfs::Exclusion::nobody();
                        assert!(pass.users_of(&target, &nobody).unwrap().obscured > 0);
                        judge(&proc, &record)
                    });
                    assert!(!seen.starts_with("dead"), "{file}: {seen}");
                }
            }
            rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        Ok(())
    });
}
