//! Reads `mountinfo`, as bytes, for two questions: is this file of `/proc` the kernel's, and under
//! which names do processes see a place?

use std::path::Path;

/// Tells whether `file`, below the mount point `root` of a `/proc`, is what the kernel put there.
///
/// True only if every mount on the way from `root` to the file is a `/proc` showing itself at its
/// own place (as containers do with `/proc/sys`, read-only), and `root` is one. What is of a process
/// must be of this very `/proc`, for in the one of another pid namespace the number is another process.
///
/// Source: `proc_pid_mountinfo(5)`.
pub(crate) fn is_uncovered(mountinfo: &[u8], root: &Path, file: &str) -> bool {
    let root = without_slash(root.as_os_str().as_encoded_bytes());
    let is_everywhere = file.starts_with("/sys/");
    // The last one at the root covers the others.
    let mut root_device = None;
    let mut other_devices = Vec::new();
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let Some(mount) = Mount::parse(line) else {
            continue;
        };
        let point = without_slash(&mount.point);
        let Some(below) = point.strip_prefix(root.as_slice()) else {
            continue;
        };
        if !is_on_the_way(below, file.as_bytes()) {
            continue;
        }
        let shown = mount.shown.strip_suffix(b"/").unwrap_or(&mount.shown);
        if mount.kind != b"proc" || shown != below {
            return false;
        }
        if below.is_empty() {
            root_device = Some(mount.device);
        } else if !is_everywhere {
            other_devices.push(mount.device);
        }
    }
    root_device.is_some_and(|root| other_devices.iter().all(|&device| device == root))
}

/// Tells whether `below` is empty, the file, or a directory above it.
fn is_on_the_way(below: &[u8], file: &[u8]) -> bool {
    match file.strip_prefix(below) {
        Some(rest) => rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

/// Returns what is mounted over entries of the `/proc` at `root`: the names of the entries.
pub(crate) fn covered<'a>(mountinfo: &'a [u8], root: &'a Path) -> impl Iterator<Item = Vec<u8>> {
    let root = without_slash(root.as_os_str().as_encoded_bytes());
    let lines = mountinfo.split(|&byte| byte == b'\n');
    lines.filter_map(Mount::parse).filter_map(move |mount| {
        let rest = below(&root, &mount.point)?.strip_prefix(b"/")?;
        rest.split(|&byte| byte == b'/').next().map(<[u8]>::to_vec)
    })
}

/// Tells whether the `/proc` at `root` is mounted so that it leaves out processes of others.
pub(crate) fn hides_processes(mountinfo: &[u8], root: &Path) -> bool {
    let root = root.as_os_str().as_encoded_bytes();
    let lines = mountinfo.split(|&byte| byte == b'\n');
    let mut at_root = lines
        .filter_map(Mount::parse)
        .filter(|mount| mount.point == root);
    // The last one covers the others.
    let options = at_root
        .next_back()
        .map_or(b"".as_slice(), |mount| mount.options);
    let mut options = options.split(|&byte| byte == b',');
    options.any(|option| HIDES.contains(&option))
}

/// What `proc(5)` calls them, and how older kernels print it.
const HIDES: [&[u8]; 4] = [
    b"hidepid=2",
    b"hidepid=4",
    b"hidepid=invisible",
    b"hidepid=ptraceable",
];

/// The mounts that processes of one mount namespace and one root see.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountTable {
    mounts: Vec<MountedAt>,
    /// The root, as links show it: without a slash at the end.
    root: Vec<u8>,
    /// There are mounts that could not be read.
    is_cut: bool,
}

#[derive(Clone, Debug)]
struct MountedAt {
    /// Its number, or nothing if that is none.
    id: Option<u64>,
    /// The number of the mount it is mounted on.
    parent: Option<u64>,
    device: Vec<u8>,
    /// Which part of the file system is shown, and where: without a slash at the end.
    shown: Vec<u8>,
    point: Vec<u8>,
}

impl MountTable {
    /// Reads a table. Lines that are none are left out.
    ///
    /// `root` is the root of whoever's table it is, as links show it: they show paths of another mount
    /// namespace from its top, and the table names what lies below that root only, from there.
    pub(crate) fn parse(mountinfo: &[u8], root: &[u8]) -> Self {
        let root = without_slash(root);
        let lines = mountinfo.split(|&byte| byte == b'\n');
        let each = lines.filter_map(Mount::parse).map(|mount| MountedAt {
            id: number(mount.id),
            parent: number(mount.parent),
            device: mount.device.to_vec(),
            shown: without_slash(
                // What was mounted and then removed.
                mount
                    .shown
                    .strip_suffix(b"//deleted")
                    .unwrap_or(&mount.shown),
            ),
            point: [&root, without_slash(&mount.point).as_slice()].concat(),
        });
        Self {
            mounts: each.collect(),
            root,
            is_cut: false,
        }
    }

    /// Says whether there are mounts beside these.
    pub(crate) const fn or_more(mut self, more: bool) -> Self {
        self.is_cut = more;
        self
    }

    /// Tells whether it is the table of somebody with this root.
    pub(crate) fn is_seen_from(&self, root: &[u8]) -> bool {
        self.root == without_slash(root)
    }

    /// Returns the other names of a place for processes of this table.
    ///
    /// Where only a part below the place is mounted, it is the name of that part. Also what is hidden by
    /// another mount has a name: of whoever was there before.
    pub(crate) fn names(&self, place: &Place) -> impl Iterator<Item = Vec<u8>> {
        let Place { device, path } = place;
        self.mounts.iter().filter_map(move |mount| {
            if mount.device != *device {
                return None;
            }
            match (below(&mount.shown, path), below(path, &mount.shown)) {
                (Some(rest), _) => Some([&mount.point, rest].concat()),
                (None, Some(_)) => Some(mount.point.clone()),
                (None, None) => None,
            }
        })
    }

    /// Finds where a path lies in which file system. Paths here have no slash at the end.
    pub(crate) fn find(&self, path: &[u8]) -> Found {
        if self.mounts.is_empty() && !self.is_cut {
            return Found::NoTable;
        }
        let covers = |mount: &&MountedAt| below(&mount.point, path).is_some();
        let covering: Vec<_> = self.mounts.iter().filter(covers).collect();
        let place = |mount: &'_ MountedAt| {
            let rest = below(&mount.point, path).unwrap_or_default();
            Place {
                device: mount.device.clone(),
                path: [&mount.shown, rest].concat(),
            }
        };
        let visible = self
            .start(&covering)
            .and_then(|start| start.walk(&covering));
        match visible.filter(|_| !self.is_cut) {
            Some(mount) => Found::At(place(mount)),
            None => Found::Untold(covering.into_iter().map(place).collect()),
        }
    }

    /// Finds where the walk to a path begins. Nothing if any of the mounts that cover the path does not
    /// come from there.
    fn start<'a>(&'a self, covering: &[&'a MountedAt]) -> Option<Step<'a>> {
        let mut starts = covering.iter().map(|mount| lowest(mount, covering));
        let first = starts.next()??;
        let on = first.parent?;
        let is_under_it = |mount: Option<&MountedAt>| mount.is_some_and(|it| it.parent == Some(on));
        let is_listed = self.mounts.iter().any(|mount| mount.id == Some(on));
        if !starts.all(is_under_it) || (is_listed && first.id != Some(on)) {
            return None;
        }
        // If the root is a directory in a mount that is not in the table, whatever is mounted on that one
        // stands beside each other, also what is mounted over the root.
        let is_other = |mount: &MountedAt| mount.parent == Some(on) && mount.id != first.id;
        let is_alone = first.id == Some(on) || !self.mounts.iter().any(is_other);
        let root = Some(first).filter(|mount| mount.point.is_empty() && is_alone);
        Some(Step {
            id: root.map_or(Some(on), |root| root.id)?,
            mount: root,
        })
    }
}

/// Follows the parents of a mount to the one that has none among those that cover a path. Nothing if they
/// are a circle.
fn lowest<'a>(mount: &'a MountedAt, covering: &[&'a MountedAt]) -> Option<&'a MountedAt> {
    let mut lowest = mount;
    for _step in covering {
        let is_parent = |mount: &&&MountedAt| mount.id == lowest.parent;
        let parent = covering.iter().find(is_parent);
        match parent {
            Some(parent) if parent.id != lowest.id => lowest = parent,
            _ => return Some(lowest),
        }
    }
    None
}

/// A step of the walk to a path, as the kernel does it: from each mount into the first that is mounted on
/// it. A mount point further below may lie in what that one hides.
#[derive(Clone, Copy, Debug)]
struct Step<'a> {
    id: u64,
    /// Nothing if the table does not name it.
    mount: Option<&'a MountedAt>,
}

impl<'a> Step<'a> {
    /// Returns the mount that shows the path which all these cover, if they tell.
    fn walk(mut self, covering: &[&'a MountedAt]) -> Option<&'a MountedAt> {
        // A step too many is a circle.
        for _step in 0..=covering.len() {
            // A path begins below what is mounted over the root.
            let is_on_it = |mount: &&MountedAt| {
                mount.parent == Some(self.id) && mount.id != mount.parent && !mount.point.is_empty()
            };
            let on_it = || covering.iter().copied().filter(is_on_it);
            let Some(next) = on_it().min_by_key(|mount| mount.point.len()) else {
                return self.mount;
            };
            let is_beside = |mount: &MountedAt| mount.point == next.point && mount.id != next.id;
            let is_above = self
                .mount
                .is_some_and(|it| it.point.len() > next.point.len());
            if is_above || on_it().any(is_beside) {
                return None;
            }
            self = Self {
                id: next.id?,
                mount: Some(next),
            };
        }
        None
    }
}

/// A place in a file system.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    device: Vec<u8>,
    path: Vec<u8>,
}

/// What a table tells of a path.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Nothing, for there is none.
    NoTable,
    At(Place),
    /// It does not tell which of these it is, if any.
    Untold(Vec<Place>),
}

/// Returns what comes after `above` if `path` is it or lies below it, by whole segments.
fn below<'a>(above: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(above)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

fn number(field: &[u8]) -> Option<u64> {
    str::from_utf8(field).ok()?.parse().ok()
}

fn without_slash(path: &[u8]) -> Vec<u8> {
    path.strip_suffix(b"/").unwrap_or(path).to_vec()
}

struct Mount<'a> {
    /// Field 1: its number.
    id: &'a [u8],
    /// Field 2: the number of the mount it is mounted on.
    parent: &'a [u8],
    /// Field 3: the device of the file system.
    device: &'a [u8],
    /// Field 4: which part of the file system is shown.
    shown: Vec<u8>,
    /// Field 5: where.
    point: Vec<u8>,
    /// The type of the file system.
    kind: &'a [u8],
    /// What is the same for all mounts of the file system.
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let id = fields.next()?;
        let parent = fields.next()?;
        let device = fields.next()?;
        let shown = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        // Optional fields end with a lone hyphen.
        let mut fields = fields.skip_while(|&field| field != b"-");
        let kind = fields.nth(1)?;
        // Between them stands the source.
        let options = fields.nth(1).unwrap_or_default();
        Some(Self {
            id,
            parent,
            device,
            shown,
            point,
            kind,
            options,
        })
    }
}

/// Undoes the kernel's escapes of blank, tab, newline and backslash: three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] => Some((((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'), tail)),
            _ => None,
        };
        let (byte, tail) = escaped.unwrap_or((first, tail));
        out.push(byte);
        rest = tail;
    }
    out
}
