//! Exploring the core, and planting faults in it, from the command line.
//!
//! Both take features that normal builds leave out; without them this says how to get them.

use std::process::ExitCode;

use crate::options::Options;

/// Explores or falsifies, as asked.
pub(crate) fn start(options: &Options) -> ExitCode {
    if options.falsify {
        falsify(options)
    } else {
        model(options)
    }
}

#[cfg(not(feature = "model"))]
fn model(_: &Options) -> ExitCode {
    crate::refuse("this build has no model checker; run `cargo xtask chaos --model`")
}

#[cfg(not(all(feature = "model", feature = "falsify")))]
fn falsify(_: &Options) -> ExitCode {
    crate::refuse("this build has no faults to plant; run `cargo xtask chaos --falsify`")
}

#[cfg(feature = "model")]
use self::with_model::model;

#[cfg(all(feature = "model", feature = "falsify"))]
use self::with_falsify::falsify;

#[cfg(feature = "model")]
mod with_model {
    use std::io;
    use std::process::ExitCode;
    use std::time::Duration;

    use chaos::clock::Deadline;
    use chaos::model::{Explored, Limits, World, worlds};

    use crate::options::Options;
    use crate::record::Record;
    use crate::terminal::Terminal;
    use crate::{NOT_ALL, VIOLATED, refuse};

    /// How long an exploration takes at most, if nobody says.
    const TIME: Duration = Duration::from_secs(60 * 60);

    /// The most states to go on from in one world; that many take about 6 GB.
    const STATES: u64 = 8_000_000;

    /// Explores the worlds asked for, or all.
    pub(super) fn model(options: &Options) -> ExitCode {
        let names: Vec<_> = worlds().iter().map(World::name).collect();
        if let Err(problem) = known(options, "world", &names) {
            return refuse(&problem);
        }
        let chosen = |world: &World| is_chosen(options, world.name());
        let worlds: Vec<World> = worlds().into_iter().filter(chosen).collect();
        if options.list {
            let lines = worlds.iter().map(|world| (world.name(), world.about()));
            return list(lines);
        }
        let record = match options.json.as_deref().map(Record::create).transpose() {
            Ok(record) => record,
            Err(problem) => return refuse(&problem.to_string()),
        };
        let terminal = Terminal::new();
        let deadline = Deadline::within(options.time.unwrap_or(TIME));
        let mut explored = Vec::new();
        for world in &worlds {
            terminal.begin(world.name());
            let limits = Limits::new(options.depth, STATES, deadline.remaining());
            let found = world.explore(limits);
            terminal.result(&told(&found));
            explored.push(found);
        }
        let written = record.map(|record| record.put(json(&explored))).transpose();
        if let Err(problem) = written {
            return refuse(&problem.to_string());
        }
        let count = explored.len();
        let broken = explored
            .iter()
            .filter(|found| found.broken.is_some())
            .count();
        let complete = explored.iter().filter(|found| found.complete).count();
        let depth = options.depth;
        let only = depth.map_or_else(String::new, |depth| format!(" to a depth of {depth}"));
        terminal.result(&format!(
            "model: {complete} of {count} worlds explored completely{only}, {broken} with a broken law\n"
        ));
        if broken > 0 {
            ExitCode::from(VIOLATED)
        } else if complete < count {
            ExitCode::from(NOT_ALL)
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Refuses names that nothing has.
    pub(super) fn known(options: &Options, what: &str, names: &[&str]) -> Result<(), String> {
        let unknown = |name: &&String| !names.contains(&name.as_str());
        match options.scenarios.iter().find(unknown) {
            None => Ok(()),
            Some(name) => Err(format!(
                "no {what} `{name}`; there are {}",
                names.join(", ")
            )),
        }
    }

    /// Whether `name` was asked for; without names everything is.
    pub(super) fn is_chosen(options: &Options, name: &str) -> bool {
        options.scenarios.is_empty() || options.scenarios.iter().any(|asked| asked == name)
    }

    pub(super) fn list<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>) -> ExitCode {
        use io::Write as _;

        let text: String = lines
            .map(|(name, about)| format!("{name:28}  {about}\n"))
            .collect();
        match io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_broken_pipe) => ExitCode::from(crate::USAGE),
        }
    }

    fn told(found: &Explored) -> String {
        let mut text = format!("{found}\n");
        if let Some(broken) = &found.broken {
            text.push_str(&format_args!("  breaks {}: {}\n", broken.law, broken.what).to_string());
            for line in &broken.history {
                text.push_str(&format_args!("    {line}\n").to_string());
            }
        }
        text
    }

    fn json(explored: &[Explored]) -> io::Result<String> {
        #[derive(serde::Serialize)]
        struct Written<'a> {
            schema: u32,
            version: &'static str,
            worlds: &'a [Explored],
        }

        let written = Written {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            worlds: explored,
        };
        let mut text = serde_json::to_string_pretty(&written)?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(all(feature = "model", feature = "falsify"))]
mod with_falsify {
    use std::io;
    use std::process::ExitCode;

    use chaos::model::falsify::{Falsified, falsify as plant, variants};

    use super::with_model::{is_chosen, known, list};
    use crate::options::Options;
    use crate::record::Record;
    use crate::summary::counted;
    use crate::terminal::Terminal;
    use crate::{VIOLATED, refuse};

    /// Plants the faults asked for, or all.
    pub(super) fn falsify(options: &Options) -> ExitCode {
        let names: Vec<_> = variants().map(|(name, _)| name).collect();
        if let Err(problem) = known(options, "fault", &names) {
            return refuse(&problem);
        }
        let chosen = || variants().filter(|(name, _)| is_chosen(options, name));
        if options.list {
            return list(chosen());
        }
        let record = match options.json.as_deref().map(Record::create).transpose() {
            Ok(record) => record,
            Err(problem) => return refuse(&problem.to_string()),
        };
        let terminal = Terminal::new();
        let mut all = Vec::new();
        for (name, _) in chosen() {
            terminal.begin(name);
            let Some(falsified) = plant(name) else {
                continue;
            };
            terminal.result(&told(&falsified));
            all.push(falsified);
        }
        let survived = all.iter().filter(|one| one.rule.is_none()).count();
        let found = all.len().saturating_sub(survived);
        terminal.result(&format!(
            "falsify: {found} of {} planted faults found, {survived} survived\n",
            all.len()
        ));
        let written = record.map(|record| record.put(json(&all))).transpose();
        if let Err(problem) = written {
            return refuse(&problem.to_string());
        }
        if survived == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(VIOLATED)
        }
    }

    fn told(falsified: &Falsified) -> String {
        let Some(rule) = falsified.rule else {
            return format!("SURVIVED {}: {}\n", falsified.variant, falsified.about);
        };
        let mut text = format!(
            "found    {} by {rule} in {} ({})\n         {}\n",
            falsified.variant,
            counted(falsified.counterexample.len(), "step"),
            falsified.world.unwrap_or_default(),
            falsified.about,
        );
        for line in &falsified.counterexample {
            text.push_str("           ");
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("           then: ");
        text.push_str(&falsified.what);
        text.push('\n');
        text
    }

    fn json(all: &[Falsified]) -> io::Result<String> {
        #[derive(serde::Serialize)]
        struct Written<'a> {
            schema: u32,
            version: &'static str,
            survived: usize,
            variants: &'a [Falsified],
        }

        let written = Written {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            survived: all.iter().filter(|one| one.rule.is_none()).count(),
            variants: all,
        };
        let mut text = serde_json::to_string_pretty(&written)?;
        text.push('\n');
        Ok(text)
    }
}
