//! Selectors resolved: through trees made by hand, and through real chains of processes.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use lease_core::Code;
use lease_procfs::select::{Labels, SelectError, Selector, resolve};
use lease_procfs::{Kernel, Pid, ProcFs, ProcessHolder, ProcessIdentity, Stat};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::occupancy::keep;
use crate::rig::{Kernels, not_run};
use crate::sys::{self, Child};

const LABELS: Labels<'_> = Labels {
    client: "cli-a",
    session: Some("sess-1"),
    run: None,
};

#[track_caller]
fn found(proc: &ProcFs, selector: &str) -> ProcessHolder {
    resolve(proc, &selector.parse().unwrap(), LABELS).unwrap()
}

#[track_caller]
fn refused(proc: &ProcFs, selector: &str) -> String {
    let error = resolve(proc, &selector.parse().unwrap(), LABELS).unwrap_err();
    assert_eq!(error.code(), Code::InvalidHolder);
    error.to_string()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// A `/proc` made by hand, with this process and a chain of ancestors above it.
struct Tree(PathBuf);

/// One line of `stat`. The start lies far behind, so nothing has to wait.
fn stat(pid: i32, name: &[u8], parent: i32, ticks: u64) -> Vec<u8> {
    let after = format!(") S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
    [pid.to_string().as_bytes(), b" (", name, after.as_bytes()].concat()
}

impl Tree {
    /// A process and its ancestors, nearest first; the last one has no parent but 1.
    fn new(name: &str, chain: &[(i32, &str, &str)]) -> Self {
        let own = own_pid();
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("select-{name}-{own}"));
        let tree = Self(root);
        tree.write(
            "sys/kernel/random/boot_id",
            b"251d7b06-ce56-4437-8f88-900d8f613d51\n",
        );
        tree.write("self/status", format!("NSpid:\t{own}\n").as_bytes());
        let parents = chain.iter().map(|&(pid, ..)| pid).chain([1]);
        let numbers: Vec<_> = [own].into_iter().chain(parents).collect();
        tree.process(own, numbers[1], "codex", "/opt/codex");
        for (at, (pid, arguments, link)) in chain.iter().enumerate() {
            tree.process(*pid, numbers[at + 2], arguments, link);
        }
        tree
    }

    fn process(&self, pid: i32, parent: i32, arguments: &str, link: &str) {
        self.write(&format!("{pid}/stat"), &stat(pid, b") (\xff\n", parent, 10));
        self.write(
            &format!("{pid}/status"),
            format!("Tgid:\t{pid}\nPid:\t{pid}\n").as_bytes(),
        );
        self.write(&format!("{pid}/cmdline"), arguments.as_bytes());
        symlink(link, self.0.join(format!("{pid}/exe"))).unwrap();
    }

    fn write(&self, name: &str, contents: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }

    /// Serves a file anew at each reading, the last form as often as there is room for.
    fn serve(&self, name: &str, forms: &[Vec<u8>]) {
        self.remove(name);
        // Each reading takes what was written at once, and no more.
        let (reader, writer) = pipe_with(PipeFlags::DIRECT | PipeFlags::NONBLOCK).unwrap();
        let mut writer = fs::File::from(writer);
        for form in forms {
            writer.write_all(form).unwrap();
        }
        while writer.write_all(forms.last().unwrap()).is_ok() {}
        let link = format!("/proc/self/fd/{}", reader.as_raw_fd());
        symlink(link, self.0.join(name)).unwrap();
        // Open as long as the test runs.
        for end in [fs::File::from(reader), writer] {
            keep(end);
        }
    }

    fn proc(&self) -> ProcFs {
        ProcFs::at(&self.0, Kernel::detect().without_pidfd())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

// B21
#[test]
fn the_nearest_ancestor_wins_and_the_caller_is_none() {
    let chain = [
        (300, "sh\0", "/bin/dash"),
        (200, "codex\0", "/opt/codex"),
        (100, "codex\0", "/opt/codex"),
    ];
    let tree = Tree::new("nearest", &chain);
    let holder = found(&tree.proc(), "ancestor:codex");
    assert_eq!(holder.process().pid.get(), 200);
    assert_eq!(holder.process().start_ticks.get(), 10);
    assert_eq!(holder.process().launch, None, "it is another process");
    assert_eq!(
        (holder.client(), holder.session(), holder.run()),
        ("cli-a", Some("sess-1"), None)
    );
    let alone = Tree::new("alone", &chain[..1]);
    assert_eq!(
        refused(&alone.proc(), "ancestor:codex"),
        "no ancestor runs \"codex\""
    );
}

// B21
#[test]
fn the_thirty_second_step_is_the_last_and_pid_1_is_never_reached() {
    for (steps, is_found) in [(31, true), (32, true), (33, false)] {
        let mut chain: Vec<_> = (1..steps)
            .map(|step| (1_000 + step, "sh\0", "/bin/dash"))
            .collect();
        chain.push((2_000, "codex\0", "/opt/codex"));
        let tree = Tree::new(&format!("steps-{steps}"), &chain);
        let selector = "ancestor:codex".parse().unwrap();
        match resolve(&tree.proc(), &selector, LABELS) {
            Ok(holder) => assert!(is_found && holder.process().pid.get() == 2_000, "{steps}"),
            Err(SelectError::NoAncestor { .. }) => assert!(!is_found, "{steps}"),
            Err(error) => panic!("{steps}: {error}"),
        }
    }
    let tree = Tree::new("init", &[(300, "sh\0", "/bin/dash")]);
    tree.process(1, 0, "codex\0", "/opt/codex");
    assert_eq!(
        refused(&tree.proc(), "ancestor:codex"),
        "no ancestor runs \"codex\""
    );
    let tree = Tree::new("outside", &[(300, "sh\0", "/bin/dash")]);
    tree.write("300/stat", &stat(300, b"sh", 0, 10));
    assert_eq!(
        refused(&tree.proc(), "ancestor:codex"),
        "no ancestor runs \"codex\""
    );
}

// B22
#[test]
fn arguments_after_the_first_are_not_looked_at() {
    let long = "codex".repeat(2_000);
    let longest = format!("{}/codex", "x".repeat(4_090));
    for (arguments, link, pid) in [
        ("sh\0-c\0codex run\0codex\0", "/bin/dash", 200),
        ("\0codex\0", "/bin/dash", 200),
        ("", "/bin/dash", 200),
        (&long, "/bin/dash", 200),
        (&format!("{longest}2\0"), "/bin/dash", 200),
        ("/opt/codex\0serve\0", "/usr/bin/node", 300),
        ("x\0", "/opt/codex", 300),
        ("codex", "/usr/bin/node", 300),
    ] {
        let tree = Tree::new(
            "arguments",
            &[(300, arguments, link), (200, "codex\0", "/opt/codex")],
        );
        let holder = found(&tree.proc(), "ancestor:codex");
        assert_eq!(holder.process().pid.get(), pid, "{link}");
    }
}

// B27
#[test]
fn an_ancestor_whose_program_was_replaced_is_found() {
    let tree = Tree::new("replaced", &[(300, "x\0", "/opt/codex (deleted)")]);
    assert_eq!(
        found(&tree.proc(), "ancestor:codex").process().pid.get(),
        300
    );
}

// B23
#[test]
fn an_ancestor_that_changes_during_the_look_is_refused() {
    let changed = "process 300, ancestor 1, changed while it was looked at";
    let chain = [
        (300, "codex\0", "/opt/codex"),
        (200, "codex\0", "/opt/codex"),
    ];
    let [old, new] = [10, 11].map(|ticks| stat(300, b"codex", 200, ticks));
    // It is read before the names and after, twice by the description, and once more.
    let described = "the selected process cannot be described";
    for (count, said) in [(1, changed), (2, changed), (3, described), (4, changed)] {
        let tree = Tree::new(&format!("changes-{count}"), &chain);
        let forms = std::iter::repeat_n(&old, count).chain([&new]);
        tree.serve("300/stat", &forms.cloned().collect::<Vec<_>>());
        assert_eq!(refused(&tree.proc(), "ancestor:codex"), said, "{count}");
    }
    // Only the description is about somebody else.
    let tree = Tree::new("changes-back", &chain);
    tree.serve(
        "300/stat",
        &[&old, &old, &new, &new, &old].map(Clone::clone),
    );
    assert_eq!(refused(&tree.proc(), "ancestor:codex"), changed);
    let tree = Tree::new("changes-never", &chain);
    tree.serve("300/stat", std::slice::from_ref(&old));
    let holder = found(&tree.proc(), "ancestor:codex");
    assert_eq!(
        (
            holder.process().pid.get(),
            holder.process().start_ticks.get()
        ),
        (300, 10)
    );
}

// B23
#[test]
fn a_child_that_gets_another_parent_during_the_look_is_refused() {
    let chain = [
        (300, "codex\0", "/opt/codex"),
        (200, "codex\0", "/opt/codex"),
    ];
    let tree = Tree::new("adopted", &chain);
    let own = own_pid();
    let [before, after] = [300, 200].map(|parent| stat(own, b"x", parent, 10));
    tree.serve(&format!("{own}/stat"), &[before.clone(), before, after]);
    let said = refused(&tree.proc(), "ancestor:codex");
    assert_eq!(
        said,
        "process 300, ancestor 1, changed while it was looked at"
    );
}

// B23
#[test]
fn an_ancestor_that_has_exited_is_refused_though_its_ticks_stay() {
    let (middle, top) = (Child::idle(), Child::idle());
    let [pid, top_pid] = [&middle, &top].map(|child| child.pid().get());
    let chain = [
        (pid, "sh\0", "/bin/dash"),
        (top_pid, "codex\0", "/opt/codex"),
    ];
    let tree = Tree::new("exits", &chain);
    let proc = ProcFs::at(&tree.0, Kernel::detect().without_pidfs());
    if !proc.kernel().pidfd {
        let test = "select::an_ancestor_that_has_exited_is_refused_though_its_ticks_stay";
        return not_run(test, "pidfs", "there is no pidfd");
    }
    assert_eq!(found(&proc, "ancestor:codex").process().pid, top.pid());
    middle.kill();
    let said = refused(&proc, "ancestor:codex");
    assert_eq!(
        said,
        format!("process {pid}, ancestor 1, changed while it was looked at")
    );
}

// B24
#[test]
fn an_ancestor_that_cannot_be_read_ends_the_walk() {
    let chain = [
        (300, "sh\0", "/bin/dash"),
        (200, "node\0", "/usr/bin/node"),
        (100, "codex\0", "/opt/codex"),
    ];
    for (file, said) in [
        (
            "exe",
            "the executable of process 200, ancestor 2, cannot be read",
        ),
        (
            "cmdline",
            "argument zero of process 200, ancestor 2, cannot be read",
        ),
        (
            "stat",
            "the stat of process 200, ancestor 2, cannot be read",
        ),
    ] {
        let tree = Tree::new(&format!("unreadable-{file}"), &chain);
        assert_eq!(
            found(&tree.proc(), "ancestor:codex").process().pid.get(),
            100
        );
        tree.remove(&format!("200/{file}"));
        assert_eq!(refused(&tree.proc(), "ancestor:codex"), said);
    }
    let tree = Tree::new("malformed", &chain);
    tree.write("200/stat", b"200 codex S");
    let said = refused(&tree.proc(), "ancestor:codex");
    assert_eq!(said, "process 200, ancestor 2, has a malformed stat");
    tree.remove(&format!("{}/stat", own_pid()));
    let said = refused(&tree.proc(), "ancestor:codex");
    assert_eq!(
        said,
        format!(
            "the stat of process {}, ancestor 0, cannot be read",
            own_pid()
        )
    );
}

// B24
#[test]
fn an_ancestor_of_another_user_ends_the_walk() {
    let test = "select::an_ancestor_of_another_user_ends_the_walk";
    if !rustix::process::getuid().is_root() {
        return not_run(test, "root", "only root becomes another user");
    }
    let parent = own_pid();
    let mut child = Child::fork(move || {
        sys::become_user(65_534);
        for proc in Kernels::new().each() {
            let said = refused(proc, "ancestor:nope");
            assert_eq!(
                said,
                format!("the executable of process {parent}, ancestor 1, cannot be read")
            );
        }
    });
    assert!(child.reap());
}

// B25
#[test]
fn no_match_names_the_program_escaped() {
    let tree = Tree::new("none", &[(300, "sh\0", "/bin/dash")]);
    assert_eq!(
        refused(&tree.proc(), "ancestor:nope"),
        "no ancestor runs \"nope\""
    );
    let selector = Selector::parse(b"ancestor:\x1b[2J\xff\"\n").unwrap();
    let error = resolve(&tree.proc(), &selector, LABELS).unwrap_err();
    assert_eq!(error.to_string(), r#"no ancestor runs "\u{1b}[2J\xff\"\n""#);
}

#[test]
fn a_label_or_a_place_that_is_wrong_is_refused() {
    let own = own_pid().to_string().parse().unwrap();
    let labels = Labels {
        client: "a b",
        ..LABELS
    };
    let error = resolve(&ProcFs::system(), &own, labels).unwrap_err();
    assert_eq!(error.to_string(), "a label of the holder is refused");
    let tree = Tree::new("not-ours", &[(300, "codex\0", "/opt/codex")]);
    tree.write("self/status", b"NSpid:\t1\t2\n");
    for selector in ["ancestor:codex", "300"] {
        assert_eq!(
            refused(&tree.proc(), selector),
            "the selected process cannot be described"
        );
    }
}

#[test]
fn a_pid_means_the_process_that_has_it() {
    for proc in Kernels::new().each() {
        let mut child = Child::idle();
        let pid = child.pid();
        let holder = found(proc, &pid.to_string());
        assert_eq!(*holder.process(), ProcessIdentity::of(proc, pid).unwrap());
        assert_eq!(holder.process().launch, None, "it is another process");
        let own = found(proc, &own_pid().to_string());
        assert_eq!(*own.process(), ProcessIdentity::own(proc).unwrap());
        child.kill();
        child.reap();
        assert_eq!(
            refused(proc, &pid.to_string()),
            "the selected process cannot be described"
        );
    }
}

/// The file name of the program that a process runs.
fn program_of(process: &str) -> Vec<u8> {
    let link = fs::read_link(format!("/proc/{process}/exe")).unwrap();
    link.file_name().unwrap().as_bytes().to_vec()
}

fn parent_of(pid: i32) -> Pid {
    let line = fs::read(format!("/proc/{pid}/stat")).unwrap();
    Stat::parse(&line).unwrap().parent.unwrap()
}

fn ancestor(program: &[u8]) -> Selector {
    Selector::parse(&[b"ancestor:", program].concat()).unwrap()
}

// B21
#[test]
fn a_forked_chain_is_walked_from_the_parent() {
    let program = program_of("self");
    let mut child = Child::fork(move || {
        // Awkward, and it shifts no field.
        rustix::thread::set_name(c") 1 S (\xff\n").unwrap();
        let middle = own_pid();
        let mut grandchild = Child::fork(move || {
            for proc in Kernels::new().each() {
                let holder = resolve(proc, &ancestor(&program), LABELS).unwrap();
                assert_eq!(
                    holder.process().pid.get(),
                    middle,
                    "not itself, and the nearest"
                );
                assert_eq!(holder.process().launch, None);
                let described = ProcessIdentity::of(proc, holder.process().pid).unwrap();
                assert_eq!(*holder.process(), described);
            }
        });
        assert!(grandchild.reap());
    });
    assert!(child.reap());
}

// B23
#[test]
fn while_the_parent_exits_nobody_else_is_ever_found() {
    let program = program_of("self");
    let (mut done, mut report) = std::io::pipe().unwrap();
    let mut child = Child::fork(move || {
        let middle = own_pid();
        let (mut orders, mut give) = std::io::pipe().unwrap();
        let grandchild = Child::fork(move || {
            let selector = ancestor(&program);
            for round in 0..1_000_000 {
                if round == 20 {
                    give.write_all(&[1]).unwrap();
                }
                if round >= 20 && parent_of(own_pid()).get() != middle {
                    break;
                }
                for proc in Kernels::new().each() {
                    match resolve(proc, &selector, LABELS) {
                        Ok(holder) => assert_eq!(holder.process().pid.get(), middle),
                        Err(error) => assert!(round >= 20, "{error}"),
                    }
                }
            }
            assert_ne!(parent_of(own_pid()).get(), middle);
            report.write_all(&[1]).unwrap();
        });
        orders.read_exact(&mut [0]).unwrap();
        // It goes on by itself, and this process ends below it.
        let _outlives = std::mem::ManuallyDrop::new(grandchild);
    });
    assert!(child.reap());
    done.read_exact(&mut [0])
        .expect("the grandchild found nobody else");
}

/// Marks the run of a test below a shell. Nothing else has it among its arguments.
const BELOW_A_SHELL: &str = "below-a-shell";

// B22
#[test]
fn a_shell_is_an_ancestor_by_its_own_name_only() {
    if std::env::args().any(|argument| argument == BELOW_A_SHELL) {
        return find_the_shell();
    }
    let program = std::env::current_exe().unwrap();
    let test = "select::a_shell_is_an_ancestor_by_its_own_name_only";
    let output = Command::new("sh")
        .args([
            OsStr::new("-c"),
            OsStr::new("\"$@\"; exit $?"),
            OsStr::new("sh"),
            program.as_os_str(),
        ])
        .args([test, "--exact", "--nocapture", "--skip", BELOW_A_SHELL])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("1 passed"), "it ran below the shell: {said}");
}

fn find_the_shell() {
    let shell = parent_of(own_pid());
    let outer = parent_of(shell.get());
    let program = program_of("self");
    for proc in Kernels::new().each() {
        assert_eq!(found(proc, "ancestor:sh").process().pid, shell);
        // The shell's other arguments hold the program's path.
        let holder = resolve(proc, &ancestor(&program), LABELS).unwrap();
        assert_eq!(holder.process().pid, outer);
    }
}

/// Stat lines whose names try to shift the fields, and lines that are none.
const AWKWARD: [&[u8]; 3] = [b"a) (b", b") R 1 2 3", b") (\xff\n"];

// S23
#[test]
fn awkward_names_are_read_and_broken_lines_are_refused() {
    for name in AWKWARD {
        assert_eq!(
            Stat::parse(&stat(7, name, 1, 987_654))
                .unwrap()
                .start_ticks
                .get(),
            987_654
        );
    }
    let tree = Tree::new("awkward", &[]);
    let whole = String::from_utf8(stat(300, b"x", 1, 987_654)).unwrap();
    let nineteen = whole.split_once(" 987654").unwrap().0;
    for broken in [
        whole.replace(')', ""),
        nineteen.to_owned(),
        whole.replace("98", "9x"),
    ] {
        tree.write("300/stat", broken.as_bytes());
        assert_eq!(
            refused(&tree.proc(), "300"),
            "the selected process cannot be described"
        );
    }

    let (mut done, mut report) = std::io::pipe().unwrap();
    let child = Child::fork(move || {
        rustix::thread::set_name(c") (\xff\n").unwrap();
        report.write_all(&[1]).unwrap();
        sys::wait_for_ever();
    });
    done.read_exact(&mut [0]).unwrap();
    let pid = child.pid();
    let line = fs::read(format!("/proc/{pid}/stat")).unwrap();
    assert!(
        line.windows(6).any(|window| window == b"() (\xff\n"),
        "the kernel shows the name as it is"
    );
    for proc in Kernels::new().each() {
        let holder = found(proc, &pid.to_string());
        assert_eq!(
            holder.process().start_ticks,
            Stat::parse(&line).unwrap().start_ticks
        );
        assert_eq!(holder.process().pid, pid);
    }
}
