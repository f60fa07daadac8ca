//! The notebook and its commands.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lease_sqlite::rusqlite::Connection;
use lease_sqlite::{
    AcquireError, GuardError, Guarded, Hold, LastWriter, LockOptions, WaitBudget, WriteLock,
};

type Outcome = Result<(), Box<dyn Error>>;

const USAGE: &str = "usage: notebook DATABASE add TEXT | import | list | export FILE | who";

/// Does one command: a database, a word, and what belongs to it. It waits for others as long as `patience`.
pub(crate) fn run(
    arguments: &[OsString],
    patience: Duration,
    input: impl BufRead,
    output: impl Write,
) -> Outcome {
    let [database, command, rest @ ..] = arguments else {
        return Err(USAGE.into());
    };
    let book = Notebook {
        database: Path::new(database),
        patience: WaitBudget::Within(patience),
    };
    let done = match (command.to_str(), rest) {
        (Some("add"), [text]) => book.add(&text.to_string_lossy()),
        (Some("import"), []) => book.import(input, output),
        (Some("list"), []) => book.list(output),
        (Some("export"), [file]) => book.export(Path::new(file), output),
        (Some("who"), []) => book.who(output),
        (Some("add" | "import" | "list" | "export" | "who"), _) => Err(USAGE.into()),
        _ => Err(format!("no such command: {}; {USAGE}", command.display()).into()),
    };
    done.map_err(|error| explained(error.as_ref()).into())
}

/// What others read of us while we hold.
fn options(purpose: &str) -> LockOptions {
    LockOptions::new().role("notebook").purpose(purpose)
}

/// Which one, and how long a command waits for the others.
struct Notebook<'a> {
    database: &'a Path,
    patience: WaitBudget,
}

const INSERT: &str = "INSERT INTO note (text) VALUES (?1)";

impl Notebook<'_> {
    /// Opens it. From here on SQLite's own word says what writes, and only that takes the lock.
    fn open(&self, purpose: &str) -> Result<Guarded, Box<dyn Error>> {
        let mut notes = options(purpose).guard(Connection::open(self.database)?)?;
        notes.set_wait(self.patience);
        let tables = "SELECT 1 FROM sqlite_schema WHERE name = 'note'";
        if notes.query(tables, [], |_row| Ok(()))?.is_empty() {
            // Somebody else may have made it by now.
            notes.batch("CREATE TABLE IF NOT EXISTS note (text TEXT NOT NULL)")?;
        }
        Ok(notes)
    }

    fn add(&self, text: &str) -> Outcome {
        let notes = self.open("adds a note")?;
        notes.execute(INSERT, [text])?;
        Ok(notes.close()?)
    }

    fn import(&self, input: impl BufRead, mut output: impl Write) -> Outcome {
        let mut notes = self.open("imports notes")?;
        // The lock is taken here and not at the first line, so nobody writes between two of them. An error on
        // the way out of this function rolls back and gives the lock back.
        let transaction = notes.transaction()?;
        writeln!(output, "has the lock")?;
        let mut count = 0_u64;
        for line in input.lines() {
            transaction.execute(INSERT, [line?])?;
            count = count.saturating_add(1);
        }
        transaction.commit()?;
        writeln!(output, "{count} notes")?;
        Ok(notes.close()?)
    }

    fn list(&self, mut output: impl Write) -> Outcome {
        let notes = self.open("lists notes")?;
        for text in all(&notes)? {
            writeln!(output, "{text}")?;
        }
        Ok(notes.close()?)
    }

    /// Writes a file under the lock of the database: what has no transactions is looked after by hand.
    fn export(&self, file: &Path, output: impl Write) -> Outcome {
        let notes = self.open("exports notes")?;
        let lock = options("exports notes").open(self.database)?;
        let hold = patient(&lock, self.patience, output)?;
        let own = [self.database, lock.lock_path(), lock.mutex_path()];
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        if own
            .iter()
            .any(|own| own.canonicalize().ok().as_ref() == Some(&file))
        {
            return Err(format!("{} belongs to the notebook", file.display()).into());
        }
        let mut unfinished = file.clone().into_os_string();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        // A new file, never what is there: it may be anybody's, and a link may lead anywhere.
        let written = File::create_new(&unfinished)
            .map_err(|error| format!("{}: {error}", unfinished.display()))?;
        let placed = place(&notes, &hold, written, &unfinished, &file);
        if placed.is_err() {
            // The first error says more than that this failed, too.
            let _removed = fs::remove_file(&unfinished);
        }
        placed?;
        hold.release()?;
        Ok(notes.close()?)
    }

    fn who(&self, mut output: impl Write) -> Outcome {
        // The sweep of each opening would take away the name of a writer that is gone.
        let options = options("asks who it is").no_boot_sweep();
        let lock = options.open(self.database)?;
        // The record names whoever wrote it last, so it is read before we write it ourselves.
        let last = lock.last_writer();
        match lock.acquire(WaitBudget::NOW) {
            Ok(hold) => {
                hold.release()?;
                writeln!(output, "free; last writer: {}", named(last))?;
            }
            Err(AcquireError::Busy(busy)) => writeln!(output, "{busy}")?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Writes every note, and puts the file in its place while the lock is still ours.
fn place(notes: &Guarded, hold: &Hold, mut to: File, from: &Path, file: &Path) -> Outcome {
    for text in all(notes)? {
        writeln!(to, "{text}")?;
    }
    to.sync_all()?;
    // The last moment: is it still ours?
    hold.check()?;
    Ok(fs::rename(from, file)?)
}

fn all(notes: &Guarded) -> Result<Vec<String>, GuardError> {
    notes.query("SELECT text FROM note ORDER BY rowid", [], |row| row.get(0))
}

/// Waits for the lock, and says so each second meanwhile.
#[cfg(feature = "async")]
fn patient(
    lock: &WriteLock,
    patience: WaitBudget,
    mut output: impl Write,
) -> Result<Hold, Box<dyn Error>> {
    // One thread for everything: whoever blocked it would stop the clock.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build()?.block_on(async {
        let mut granted = std::pin::pin!(lock.acquire_async(patience));
        loop {
            let second = tokio::time::sleep(Duration::from_secs(1));
            tokio::select! {
                granted = &mut granted => return Ok(granted?),
                () = second => {
                    writeln!(output, "waits for {}", named(lock.last_writer()))?;
                }
            }
        }
    })
}

/// Waits for the lock.
#[cfg(not(feature = "async"))]
fn patient(
    lock: &WriteLock,
    patience: WaitBudget,
    _output: impl Write,
) -> Result<Hold, Box<dyn Error>> {
    Ok(lock.acquire(patience)?)
}

/// Says what went wrong, down to its cause.
fn explained(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn named(writer: Option<LastWriter>) -> String {
    writer.map_or_else(|| "nobody known".to_owned(), |writer| writer.to_string())
}
