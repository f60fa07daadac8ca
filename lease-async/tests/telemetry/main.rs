//! What is told to whoever looks on, held to `docs/telemetry.md`, and sent to collectors.

#[cfg(target_os = "linux")]
#[cfg(test)]
mod collector;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod contract;
#[cfg(test)]
mod counts;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod everything;
#[cfg(target_os = "linux")]
#[cfg(test)]
#[path = "../../examples/traced/export.rs"]
mod export;
#[cfg(target_os = "linux")]
#[cfg(test)]
#[path = "../../../xtask/src/rig.rs"]
mod not_run;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod otlp;
#[cfg(test)]
#[path = "../it/passing_on.rs"]
mod passing_on;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod receiver;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod rig;
#[cfg(target_os = "linux")]
#[cfg(test)]
#[path = "../../examples/traced/story.rs"]
mod story;
