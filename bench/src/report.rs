//! One row a measurement; text for people, JSON for programs.

use std::fmt::Write as _;

/// One measurement.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ours: f64,
    pub(crate) floor: Option<f64>,
    /// The ratio, or without a floor the figure, that is aimed at.
    pub(crate) goal: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) allocations: Option<f64>,
    pub(crate) calls: Calls,
    pub(crate) peers: Vec<(&'static str, f64)>,
}

/// One kind of call, and what it is for.
pub(crate) struct Item {
    pub(crate) call: String,
    pub(crate) count: f64,
    pub(crate) purpose: &'static str,
}

/// System calls of one unit.
pub(crate) enum Calls {
    /// The work makes none, or nobody asked.
    NotCounted,
    Counted {
        ours: f64,
        floor: f64,
    },
    /// It must be so many, and each is accounted for.
    Itemised {
        exactly: f64,
        items: Vec<Item>,
        floor: f64,
    },
    /// Why the machine could not count them.
    NotRun(String),
}

impl Calls {
    /// What a person reads behind the row.
    fn text(&self) -> String {
        match self {
            Self::NotCounted => String::new(),
            Self::Counted { ours, floor } => format!("  calls {ours:.1} (floor {floor:.1})"),
            Self::Itemised {
                exactly,
                items,
                floor,
            } => itemised(*exactly, items, *floor),
            Self::NotRun(reason) => format!("  calls NOT RUN: strace: {reason}"),
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Self::NotCounted => serde_json::Value::Null,
            Self::Counted { ours, floor } => serde_json::json!({ "ours": ours, "floor": floor }),
            Self::Itemised {
                exactly,
                items,
                floor,
            } => serde_json::json!({
                "ours": total(items), "floor": floor, "exactly": exactly,
                "each": items.iter().map(|item| serde_json::json!({
                    "call": item.call, "count": item.count, "purpose": item.purpose,
                })).collect::<Vec<_>>(),
            }),
            Self::NotRun(reason) => serde_json::json!({ "not_run": reason }),
        }
    }

    /// A count that must be exact is not.
    fn is_wrong(&self) -> bool {
        match self {
            Self::Itemised { exactly, items, .. } => (total(items) - exactly).abs() > 0.01,
            Self::NotCounted | Self::Counted { .. } | Self::NotRun(_) => false,
        }
    }
}

fn total(items: &[Item]) -> f64 {
    items.iter().map(|item| item.count).sum()
}

fn itemised(exactly: f64, items: &[Item], floor: f64) -> String {
    let mut out = format!(
        "  calls {:.2}, must be {exactly:.0} (floor {floor:.1})",
        total(items)
    );
    for item in items {
        let Item {
            call,
            count,
            purpose,
        } = item;
        let _infallible = write!(out, "\n      {count:>5.2} {call:<12} {purpose}");
    }
    out
}

impl Row {
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.floor.map(|floor| self.ours / floor)
    }

    /// What the goal speaks of.
    fn reached(&self) -> f64 {
        self.ratio().unwrap_or(self.ours)
    }

    pub(crate) fn misses_goal_twice(&self) -> bool {
        self.goal.is_some_and(|goal| self.reached() > goal * 2.0) || self.calls.is_wrong()
    }

    fn verdict(&self) -> &'static str {
        match self.goal {
            None => "",
            Some(goal) if self.reached() <= goal => "reached",
            Some(_) if self.misses_goal_twice() => "missed by more than twice",
            Some(_) => "missed",
        }
    }
}

pub(crate) fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let _infallible = write!(out, "{:<44} {:>9.1} {:<10}", row.name, row.ours, row.unit);
        if let (Some(floor), Some(ratio)) = (row.floor, row.ratio()) {
            let _infallible = write!(out, " floor {floor:>7.1}  ratio {ratio:>5.2}");
        }
        if let Some(goal) = row.goal {
            let _infallible = write!(out, "  goal {goal:>5.2} {}", row.verdict());
        }
        if let Some(allocations) = row.allocations {
            let _infallible = write!(out, "  allocations {allocations:.2}");
        }
        out.push_str(&row.calls.text());
        out.push('\n');
        for (peer, nanos) in &row.peers {
            let _infallible = writeln!(out, "    {peer:<40} {nanos:>9.1} {}", row.unit);
        }
    }
    out
}

pub(crate) fn json(rows: &[Row]) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "name": row.name, "ours": row.ours, "unit": row.unit, "floor": row.floor,
                "ratio": row.ratio(), "goal": row.goal, "verdict": row.verdict(),
                "allocations": row.allocations,
                "system_calls": row.calls.json(),
                "peers": row.peers.iter().map(|(name, figure)| serde_json::json!({
                    "name": name, "figure": figure,
                })).collect::<Vec<_>>(),
            })
        })
        .collect();
    let report = serde_json::json!({ "schema": 1, "rows": rows });
    serde_json::to_string_pretty(&report).unwrap_or_default()
}
