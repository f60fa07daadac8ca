//! Whole histories over real processes: wrappers that die, children that stay, strangers in the path.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lease_core::{AdoptProof, Code};
use lease_procfs::bound::{
    Adoption, Answered, Asked, GrantReceipt, Refused, Release, ReleaseOnBehalf, Request,
};
use lease_procfs::work::{OccupancyExclusion, ProcessGroup};
use lease_procfs::{
    Matching, Pid, ProcFs, ProcLiveness, ProcessHolder, ProcessIdentity, StartTicks, TargetPath,
};
use rustix::process::{getpid, set_child_subreaper, setpgid};

use super::rig::{Keeper, lease_id, told};
use crate::rig::{Space, isolated};
use crate::sys::{Child, wait_for_ever};

/// A folder of a test's own, with an allocation in it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let pid = getpid().as_raw_nonzero();
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bound-{name}-{pid}"));
        fs::create_dir_all(root.join("alloc-7")).unwrap();
        fs::create_dir_all(root.join("alloc-70")).unwrap();
        Self(root.canonicalize().unwrap())
    }

    fn allocation(&self) -> PathBuf {
        self.0.join("alloc-7")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A keeper that looks at real processes, for the allocation in this folder.
fn keeper(folder: &Folder, liveness: ProcLiveness) -> Keeper<ProcLiveness> {
    let own = ProcessIdentity::own(liveness.proc()).unwrap();
    let mut keeper = Keeper::in_boot(own.boot_id, liveness);
    keeper.yard.record.path = TargetPath::new(folder.allocation()).unwrap();
    keeper
}

fn holder(client: &str, process: ProcessIdentity) -> ProcessHolder {
    ProcessHolder::new(client, process).unwrap()
}

/// Describes a running process as the holder it is, its group included.
fn described(client: &str, pid: Pid) -> ProcessHolder {
    let proc = ProcFs::system();
    let process = ProcessIdentity::of(&proc, pid).unwrap();
    let group = ProcessGroup::of(&proc, &process).unwrap().unwrap();
    holder(client, process).with_group(group)
}

fn of_exited(holder: &ProcessHolder) -> Release {
    Release::OnBehalf(ReleaseOnBehalf::of(holder.clone()).with_lease(lease_id(1)))
}

/// What was told, and who is in the way.
#[track_caller]
fn in_the_way(
    answer: Result<GrantReceipt, Refused>,
) -> ((Code, Option<&'static str>), Vec<String>) {
    let refused = answer.unwrap_err();
    let evidence = match &refused {
        Refused::Core(lease_core::Refusal::Held(held)) => held.verdict.as_ref().unwrap().evidence(),
        refused => panic!("not held: {refused}"),
    };
    let occupants = evidence.occupants.iter().map(ToString::to_string).collect();
    ((refused.code(), refused.reason()), occupants)
}

#[track_caller]
fn taken_over(answer: Result<GrantReceipt, Refused>, from: &ProcessHolder) -> String {
    let receipt = answer.unwrap();
    assert_eq!(receipt.change.code, Code::TakenOver);
    assert_eq!(receipt.record_version, 1);
    assert_eq!(receipt.change.token.unwrap().lease, lease_id(2));
    let previous = receipt.previous.unwrap();
    assert_eq!(
        (previous.token.lease, &previous.holder),
        (lease_id(1), from)
    );
    previous.evidence.unwrap().proof.into_owned()
}

/// A process that was started by a child of ours. Dropping it kills it.
#[derive(Debug)]
struct Grandchild(Pid);

impl Grandchild {
    /// Kills it, and reaps it: it came to us when its parent died.
    fn end(self) {
        self.kill();
        let options = rustix::process::WaitOptions::empty();
        rustix::process::waitpid(raw(self.0), options).unwrap();
        let _reaped = std::mem::ManuallyDrop::new(self);
    }

    fn kill(&self) {
        let killed = rustix::process::Signal::KILL;
        // It may have gone already, where a check failed in between.
        let _gone = rustix::process::kill_process(raw(self.0).unwrap(), killed);
    }
}

impl Drop for Grandchild {
    fn drop(&mut self) {
        self.kill();
    }
}

const fn raw(pid: Pid) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(pid.get())
}

/// Children of our dead children become ours.
fn reap_grandchildren() {
    set_child_subreaper(Some(getpid())).unwrap();
}

/// Tells a number over a pipe.
fn tell(writer: &mut impl io::Write, pid: Pid) {
    writer.write_all(&pid.get().to_ne_bytes()).unwrap();
}

fn hear(reader: &mut impl io::Read) -> Pid {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).unwrap();
    Pid::new(i64::from(i32::from_ne_bytes(bytes))).unwrap()
}

/// A holder that waits to be killed, in a group of its own: the test's other processes are no work of
/// its.
fn alone() -> Child {
    let (mut ready, mut writer) = io::pipe().unwrap();
    let child = Child::fork(move || {
        setpgid(None, None).unwrap();
        writer.write_all(&[0]).unwrap();
        wait_for_ever();
    });
    ready.read_exact(&mut [0]).unwrap();
    child
}

/// A wrapper with a child in its group and outside of every path. Leads its group if it is told to.
fn wrapper(leads: bool, mut writer: io::PipeWriter) -> impl FnOnce() {
    move || {
        if leads {
            setpgid(None, None).unwrap();
        }
        std::env::set_current_dir("/").unwrap();
        let child = Child::idle();
        tell(&mut writer, child.pid());
        wait_for_ever();
    }
}

// S18
#[test]
fn the_child_of_a_killed_wrapper_keeps_the_lease_until_it_exits() {
    reap_grandchildren();
    let folder = Folder::new("s18");
    let (mut reader, writer) = io::pipe().unwrap();
    let mut h1 = Child::fork(wrapper(true, writer));
    let child = Grandchild(hear(&mut reader));
    let h2 = Child::idle();
    let (first, second) = (described("cli-a", h1.pid()), described("cli-b", h2.pid()));
    let keeper = keeper(&folder, ProcLiveness::system());
    keeper.acquire(&first).unwrap();
    let alive = told(keeper.acquire(&second));
    assert_eq!(alive, (Code::LeaseHeld, Some("alive")));

    h1.kill();
    h1.reap();
    let (told, occupants) = in_the_way(keeper.acquire(&second));
    assert_eq!(told, (Code::LeaseHeld, Some("group")));
    assert!(occupants[0].contains(&child.0.to_string()), "{occupants:?}");
    // Nor may anybody release for it.
    let released = super::rig::told(keeper.release(&of_exited(&first)));
    assert_eq!(released, (Code::LeaseMismatch, Some("exited_group_alive")));

    child.end();
    taken_over(keeper.acquire(&second), &first);
}

/// Waits until a process that starts now starts in a later tick than this one.
fn wait_for_a_later_tick_than(process: &ProcessIdentity) {
    for _ in 0..5_000 {
        let probe = Child::idle();
        let probed = ProcessIdentity::of(&ProcFs::system(), probe.pid()).unwrap();
        if probed.start_ticks.get() > process.start_ticks.get() {
            return;
        }
    }
    panic!("the clock stands still");
}

/// A leader, a wrapper in its group that started later, and a child of that in the same group.
struct Group {
    leader: Child,
    wrapper: Pid,
    child: Grandchild,
}

impl Group {
    fn new() -> Self {
        let (mut to_test, writer) = io::pipe().unwrap();
        let (mut go, mut to_leader) = io::pipe().unwrap();
        let leader = Child::fork(move || {
            setpgid(None, None).unwrap();
            go.read_exact(&mut [0]).unwrap();
            let mut to_test = writer.try_clone().unwrap();
            let mut wrapper = Child::fork(wrapper(false, writer));
            tell(&mut to_test, wrapper.pid());
            wrapper.reap();
            wait_for_ever();
        });
        let process = ProcessIdentity::of(&ProcFs::system(), leader.pid()).unwrap();
        wait_for_a_later_tick_than(&process);
        to_leader.write_all(&[0]).unwrap();
        // The two numbers come in either order, and the wrapper's parent is the leader.
        let mut pids = [hear(&mut to_test), hear(&mut to_test)];
        if parent(pids[0]) != leader.pid() {
            pids.reverse();
        }
        let [wrapper, child] = pids;
        Self {
            leader,
            wrapper,
            child: Grandchild(child),
        }
    }

    fn kill_wrapper(&self) {
        let pid = raw(self.wrapper).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // Its leader reaps it.
        for _ in 0..5_000 {
            if rustix::process::test_kill_process(pid).is_err() {
                return;
            }
            crate::live::nap();
        }
        panic!("process {} is never reaped", self.wrapper);
    }
}

fn parent(pid: Pid) -> Pid {
    let line = fs::read(format!("/proc/{pid}/stat")).unwrap();
    lease_procfs::Stat::parse(&line).unwrap().parent.unwrap()
}

// S19
#[test]
fn the_group_recorded_for_a_killed_non_leader_keeps_the_lease_and_its_old_leader_does_not() {
    reap_grandchildren();
    let folder = Folder::new("s19");
    let group = Group::new();
    let h2 = Child::idle();
    let first = described("cli-a", group.wrapper);
    let second = described("cli-b", h2.pid());
    assert_eq!(first.group().unwrap().get(), group.leader.pid());
    let as_before = ProcLiveness::system().ignore_recorded_groups();
    let keepers = [as_before, ProcLiveness::system()].map(|liveness| keeper(&folder, liveness));
    for keeper in &keepers {
        keeper.acquire(&first).unwrap();
    }
    group.kill_wrapper();
    taken_over(keepers[0].acquire(&second), &first);
    let (told, occupants) = in_the_way(keepers[1].acquire(&second));
    assert_eq!(told, (Code::LeaseHeld, Some("group")));
    assert_eq!(occupants.len(), 1, "the leader is older: {occupants:?}");
    assert!(occupants[0].contains(&group.child.0.to_string()));
    group.child.end();
    taken_over(keepers[1].acquire(&second), &first);
}

/// A pair of processes in a group of its own: the leader, and a member.
fn pair() -> (Child, Child) {
    let leader = alone();
    let member = Child::idle();
    setpgid(raw(member.pid()), raw(leader.pid())).unwrap();
    (leader, member)
}

// S21
#[test]
fn after_a_reboot_the_group_of_a_namesake_is_nothing_and_a_user_of_the_path_is() {
    let folder = Folder::new("s21");
    let (namesake, _member) = pair();
    let mut earlier = described("cli-a", namesake.pid());
    let mut process = *earlier.process();
    process.boot_id = super::rig::BOOT1.parse().unwrap();
    let group = earlier.group().unwrap();
    earlier = holder("cli-a", process).with_group(group);
    let h2 = Child::idle();
    let second = described("cli-b", h2.pid());
    let first_boot = || {
        let keeper = keeper(&folder, ProcLiveness::system());
        keeper.acquire(&earlier).unwrap();
        keeper
    };
    let proof = taken_over(first_boot().acquire(&second), &earlier);
    assert_eq!(proof, "other_boot");
    let inside = idle_in(&folder.allocation());
    let (told, occupants) = in_the_way(first_boot().acquire(&second));
    assert_eq!(told, (Code::LeaseHeld, Some("paths")));
    assert!(occupants[0].contains(&inside.pid().to_string()));
}

// S22
#[test]
fn the_group_of_a_process_with_a_recycled_pid_is_no_evidence() {
    let folder = Folder::new("s22");
    let (namesake, _second_member) = pair();
    let now = described("cli-a", namesake.pid());
    let mut process = *now.process();
    process.start_ticks = StartTicks::new(process.start_ticks.get() - 1);
    process.pidfd_inode = process.pidfd_inode.map(|inode| inode - 1);
    let earlier = holder("cli-a", process);
    let h2 = Child::idle();
    let keeper = keeper(&folder, ProcLiveness::system());
    keeper.acquire(&earlier).unwrap();
    let second = described("cli-b", h2.pid());
    let proof = taken_over(keeper.acquire(&second), &earlier);
    assert_eq!(proof, "pid_recycled");
}

/// A process with this working directory.
fn idle_in(folder: &Path) -> Child {
    let (mut ready, mut writer) = io::pipe().unwrap();
    let folder = folder.to_owned();
    let child = Child::fork(move || {
        std::env::set_current_dir(folder).unwrap();
        writer.write_all(&[0]).unwrap();
        wait_for_ever();
    });
    ready.read_exact(&mut [0]).unwrap();
    child
}

/// A process that keeps this file open.
fn idle_with(file: &Path) -> Child {
    let (mut ready, mut writer) = io::pipe().unwrap();
    let file = file.to_owned();
    let child = Child::fork(move || {
        std::env::set_current_dir("/").unwrap();
        let _open = File::create(file).unwrap();
        writer.write_all(&[0]).unwrap();
        wait_for_ever();
    });
    ready.read_exact(&mut [0]).unwrap();
    child
}

/// A process that maps this file, and has it open no more: a program of that name.
fn idle_as(program: &Path) -> Child {
    let (mut ready, writer) = io::pipe().unwrap();
    let program = program.to_owned();
    let child = Child::fork(move || {
        let _closed_by_exec = writer;
        std::env::set_current_dir("/").unwrap();
        let error = Command::new(program).arg("1000").exec();
        panic!("{error}");
    });
    // Nothing is written: the end of the pipe is closed by the exec.
    assert_eq!(ready.read(&mut [0]).unwrap(), 0);
    child
}

// S25
#[test]
fn a_stranger_in_the_path_prevents_a_takeover_and_one_beside_it_does_not() {
    let folder = Folder::new("s25");
    let path = folder.allocation();
    let program = path.join("sleep");
    fs::copy("/bin/sleep", &program).unwrap();
    let mut dead = alone();
    let first = described("cli-a", dead.pid());
    dead.kill();
    dead.reap();
    let h2 = Child::idle();
    let second = described("cli-b", h2.pid());
    let held = || {
        let keeper = keeper(&folder, ProcLiveness::system());
        keeper.acquire(&first).unwrap();
        keeper
    };
    let prevents = |stranger: &Child| {
        let keeper = held();
        let (told, occupants) = in_the_way(keeper.acquire(&second));
        assert_eq!(told, (Code::LeaseHeld, Some("paths")));
        assert_eq!(occupants.len(), 1, "{occupants:?}");
        let pid = stranger.pid().to_string();
        assert!(occupants[0].contains(&pid), "{pid} in {occupants:?}");
        let released = super::rig::told(keeper.release(&of_exited(&first)));
        assert_eq!(released, (Code::LeaseMismatch, Some("exited_path_in_use")));
    };
    prevents(&idle_in(&path));
    prevents(&idle_with(&path.join("x")));
    prevents(&idle_as(&program));
    let stays = idle_in(&path);
    fs::remove_dir_all(&path).unwrap();
    fs::create_dir(&path).unwrap();
    prevents(&stays);
    drop(stays);
    for beside in [
        idle_with(&folder.0.join("alloc-70").join("x")),
        idle_in(&folder.0),
    ] {
        taken_over(held().acquire(&second), &first);
        drop(beside);
    }
}

/// Runs `body` in a process whose parent and grandparent work in `folder`, and tells what it says and
/// who these two are.
fn below_a_shell_in(folder: &Path, body: impl FnOnce() -> String) -> (String, [Pid; 2]) {
    let (mut reader, mut writer) = io::pipe().unwrap();
    let folder = folder.to_owned();
    let mut grandparent = Child::fork(move || {
        std::env::set_current_dir(&folder).unwrap();
        let mut parent = Child::fork(move || {
            let own = Pid::new(i64::from(getpid().as_raw_nonzero().get())).unwrap();
            tell(&mut writer, own);
            let mut host = Child::fork(move || {
                std::env::set_current_dir("/").unwrap();
                let said = body();
                writer.write_all(said.as_bytes()).unwrap();
            });
            assert!(host.reap());
        });
        assert!(parent.reap());
    });
    let parent = hear(&mut reader);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    let pids = [parent, grandparent.pid()];
    assert!(grandparent.reap());
    (said, pids)
}

/// What a host is told that releases for an exited holder.
fn release_for(keeper: &Keeper<ProcLiveness>, first: &ProcessHolder) -> String {
    match keeper.release(&of_exited(first)) {
        Ok(receipt) => format!("{} {}", receipt.change.code, receipt.holder_exited),
        Err(refused) => format!("{} {:?}", refused.code(), refused.reason()),
    }
}

// B107, S29
#[test]
fn a_host_below_a_shell_in_the_path_releases_for_an_exited_holder_and_acquires_nothing() {
    let folder = Folder::new("s29");
    let path = folder.allocation();
    let mut dead = alone();
    let first = described("cli-a", dead.pid());
    dead.kill();
    dead.reap();
    let h2 = Child::idle();
    let second = described("cli-b", h2.pid());
    let keeper = |exclusion| {
        let keeper = keeper(&folder, ProcLiveness::system().exclude(exclusion));
        keeper.acquire(&first).unwrap();
        keeper
    };
    let for_release = keeper(OccupancyExclusion::CallerAncestry);
    let (said, _) = below_a_shell_in(&path, || release_for(&for_release, &first));
    assert_eq!(said, "WRITER_LEASE_RELEASED true");

    let for_takeover = keeper(OccupancyExclusion::Caller);
    let (said, shells) = below_a_shell_in(&path, || {
        let (told, occupants) = in_the_way(for_takeover.acquire(&second));
        assert_eq!(told, (Code::LeaseHeld, Some("paths")));
        occupants.join("\n")
    });
    assert_eq!(said.lines().count(), 2, "{said}");
    for shell in shells {
        assert!(said.contains(&shell.to_string()), "{shell} in {said}");
    }
}

// B107, S29
#[test]
fn the_first_process_is_never_part_of_the_ancestry() {
    let test = "the_first_process_is_never_part_of_the_ancestry";
    isolated(test, Space::Pid, || {
        let folder = Folder::new("s29-init");
        let mut dead = alone();
        let first = described("cli-a", dead.pid());
        dead.kill();
        dead.reap();
        let liveness = ProcLiveness::system().exclude(OccupancyExclusion::CallerAncestry);
        let keeper = keeper(&folder, liveness);
        keeper.acquire(&first).unwrap();
        std::env::set_current_dir(folder.allocation()).unwrap();
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut host = Child::fork(|| {
            std::env::set_current_dir("/").unwrap();
            let said = release_for(&keeper, &first);
            writer.write_all(said.as_bytes()).unwrap();
        });
        assert!(host.reap());
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        std::env::set_current_dir("/").unwrap();
        assert_eq!(said, "WRITER_LEASE_MISMATCH Some(\"exited_path_in_use\")");
        Ok(())
    });
}

/// Offers the lease that was granted, and lets `to` adopt it by the ticket.
fn hand_over(keeper: &Keeper<ProcLiveness>, answered: Answered, to: &ProcessHolder) {
    let Answered::Granted { grant, .. } = answered else {
        panic!("not granted: {answered:?}");
    };
    let allocation = keeper.yard.record.allocation.clone();
    let ticket = [7; 16];
    let offered = keeper.call(|ledger, turn| {
        let offered = ledger.offer(&allocation, grant.at, ticket, turn);
        offered.map(Asked::Done)
    });
    assert_eq!(offered.unwrap().code, Code::Offered);
    let adopted = keeper.call(|ledger, turn| {
        let adoption = Adoption {
            token: grant.at.token,
            proof: AdoptProof::Ticket(ticket),
            to: to.clone(),
        };
        let adopted = ledger.adopt(&allocation, adoption, turn);
        adopted.map(Asked::Done)
    });
    let (adopted, change) = adopted.unwrap();
    assert_eq!(
        (adopted.at.token, change.code),
        (grant.at.token, Code::Adopted)
    );
}

#[test]
fn a_process_that_execs_adopts_its_own_lease_and_keeps_the_token() {
    let folder = Folder::new("exec");
    let (mut from_child, mut writer) = io::pipe().unwrap();
    let (mut go, mut to_child) = io::pipe().unwrap();
    let mut child = Child::fork(move || {
        setpgid(None, None).unwrap();
        let own = ProcessIdentity::own(&ProcFs::system()).unwrap();
        writeln!(writer, "{own}").unwrap();
        go.read_exact(&mut [0]).unwrap();
        let error = Command::new("/bin/sleep").arg("1000").exec();
        panic!("{error}");
    });
    let mut line = String::new();
    let mut byte = [0];
    while from_child.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    let before = holder("cli-a", line.parse().unwrap());
    let keeper = keeper(&folder, ProcLiveness::system());
    let answered = keeper.request(&Request::new(&before)).unwrap();
    to_child.write_all(&[0]).unwrap();
    // The pipe is closed by the exec.
    assert_eq!(from_child.read(&mut byte).unwrap(), 0);

    // The same process, and a new image of it that nobody has described yet.
    let after = described("cli-a", child.pid());
    assert_eq!(before.process().matches(after.process()), Matching::Same);
    assert_ne!(before, after);
    let held = told(keeper.acquire(&after));
    assert_eq!(held, (Code::LeaseHeld, Some("alive")));
    hand_over(&keeper, answered, &after);
    assert!(keeper.check(&after).is_ok());
    assert_eq!(told(keeper.check(&before)).1, Some("holder"));

    child.kill();
    child.reap();
    let h2 = Child::idle();
    taken_over(keeper.acquire(&described("cli-b", h2.pid())), &after);
}

#[test]
fn a_child_that_adopted_a_lease_keeps_it_after_its_parent_is_gone() {
    reap_grandchildren();
    let folder = Folder::new("child");
    let (mut reader, writer) = io::pipe().unwrap();
    let mut parent = Child::fork(wrapper(true, writer));
    let child = Grandchild(hear(&mut reader));
    let keeper = keeper(&folder, ProcLiveness::system());
    let first = described("cli-a", parent.pid());
    let answered = keeper.request(&Request::new(&first)).unwrap();
    let heir = described("cli-a", child.0);
    hand_over(&keeper, answered, &heir);
    parent.kill();
    parent.reap();
    let h2 = Child::idle();
    let second = described("cli-b", h2.pid());
    assert_eq!(
        told(keeper.acquire(&second)),
        (Code::LeaseHeld, Some("alive"))
    );
    assert!(keeper.check(&heir).is_ok());
    child.end();
    taken_over(keeper.acquire(&second), &heir);
}
