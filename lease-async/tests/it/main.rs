//! Sessions, guards and waiting, seen through tokio.

#[cfg(test)]
mod again;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod bare;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod calls_back;
#[cfg(test)]
mod cancel;
#[cfg(test)]
mod clock;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod daemon;
#[cfg(all(feature = "procfs", target_os = "linux"))]
#[cfg(test)]
mod deaths;
#[cfg(target_os = "linux")]
#[cfg(test)]
#[path = "../../examples/daemon"]
mod desk {
    use super::lines;

    pub(crate) mod files;
    pub(crate) mod program;
    pub(crate) mod serve;
}
#[cfg(test)]
mod drops;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod events;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod forks;
#[cfg(test)]
mod incidents;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod jump;
#[cfg(test)]
mod late;
#[cfg(unix)]
#[cfg(test)]
#[path = "../../examples/shared/lines.rs"]
mod lines;
#[cfg(test)]
mod liveness;
#[cfg(test)]
mod loss;
#[cfg(test)]
mod mute;
#[cfg(target_os = "linux")]
#[cfg(test)]
#[path = "../../../xtask/src/rig.rs"]
mod not_run;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod passing_on;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod quiet;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod renewal;
#[cfg(test)]
#[path = "../../../lease-core/tests/it/replay.rs"]
mod replay;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod starved;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod stress;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod sys;
#[cfg(unix)]
#[cfg(test)]
mod tool_server;
#[cfg(unix)]
#[cfg(test)]
#[path = "../../examples/tool_server/server.rs"]
mod tools;
#[cfg(test)]
mod undecided;
#[cfg(test)]
mod words;
