//! Process-bound leases: gates, records, receipts, and whole histories over scripted and real
//! processes.

#[cfg(test)]
mod entitlement;
#[cfg(test)]
mod gates;
#[cfg(test)]
mod histories;
#[cfg(target_os = "linux")]
#[cfg(test)]
mod live;
#[cfg(test)]
mod record;
#[cfg(test)]
mod release;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod words;
