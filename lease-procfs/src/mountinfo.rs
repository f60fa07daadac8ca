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
}

#[derive(Clone, Debug)]
struct MountedAt {
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
        }
    }

    /// Tells whether it is the table of somebody with this root.
    pub(crate) fn is_seen_from(&self, root: &[u8]) -> bool {
        self.root == without_slash(root)
    }

    /// Returns the other names of `path`, a path in the table `own`, for processes of this table.
    ///
    /// Where only a part below the path is mounted, it is the name of that part. Paths here have no
    /// slash at the end.
    pub(crate) fn names(&self, own: &Self, path: &[u8]) -> Vec<Vec<u8>> {
        let Some((device, place)) = own.place(path) else {
            return Vec::new();
        };
        let name = |mount: &MountedAt| {
            if mount.device != device {
                return None;
            }
            match (below(&mount.shown, &place), below(&place, &mount.shown)) {
                (Some(rest), _) => Some([&mount.point, rest].concat()),
                (None, Some(_)) => Some(mount.point.clone()),
                (None, None) => None,
            }
        };
        self.mounts.iter().filter_map(name).collect()
    }

    /// Finds the file system of a path, and where in it the path lies.
    fn place(&self, path: &[u8]) -> Option<(&[u8], Vec<u8>)> {
        let covering = self
            .mounts
            .iter()
            .filter(|mount| below(&mount.point, path).is_some());
        // The last of those mounted at the same place covers the others.
        let mount = covering.max_by_key(|mount| mount.point.len())?;
        let rest = below(&mount.point, path)?;
        Some((&mount.device, [&mount.shown, rest].concat()))
    }
}

/// Returns what comes after `above` if `path` is it or lies below it, by whole segments.
fn below<'a>(above: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(above)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

fn without_slash(path: &[u8]) -> Vec<u8> {
    path.strip_suffix(b"/").unwrap_or(path).to_vec()
}

struct Mount<'a> {
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
        let device = fields.nth(2)?;
        let shown = unescape(fields.next()?);
        let point = unescape(fields.next()?);
        // Optional fields end with a lone hyphen.
        let mut fields = fields.skip_while(|&field| field != b"-");
        let kind = fields.nth(1)?;
        // Between them stands the source.
        let options = fields.nth(1).unwrap_or_default();
        Some(Self {
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
