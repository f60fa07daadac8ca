//! The tests of the fault injector.

#[cfg(test)]
mod broken;
#[cfg(test)]
mod command;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod model;
#[cfg(target_os = "linux")]
#[cfg(test)]
#[path = "../../../xtask/src/rig.rs"]
mod not_run;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod real;
#[cfg(test)]
mod script;
#[cfg(test)]
mod sim;
