//! Steps that the scenarios have in common, each with its check.

use lease_core::{Code, FencingToken, Generation};
use lease_procfs::Kernel;

use super::problem::Problem;
use super::story::{Count, Rule};
use super::wire::{Answer, Command, Refused, Reply};
use super::world::{Authority, Process, World};

/// A grant, as its receiver was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) token: FencingToken,
    pub(crate) code: Code,
    pub(crate) created: bool,
    pub(crate) previous: Option<Generation>,
}

/// What is said of a holder that runs: before Linux 6.9 it is known by its start ticks only.
pub(crate) const fn alive(kernel: Kernel) -> &'static str {
    if kernel.pidfs {
        "alive: running"
    } else {
        "alive: running_by_start_ticks"
    }
}

/// Asks at once, without waiting.
pub(crate) const AT_ONCE: Command = Command::Acquire { wait_ms: 0 };

impl World {
    /// The holder asks and must be granted a new lease.
    pub(crate) fn acquires(&mut self, holder: &mut Process) -> Result<Granted, Problem> {
        let reply = holder.ask(&AT_ONCE)?;
        self.granted(holder, reply)
    }

    /// The answer must be a grant.
    pub(crate) fn granted(&mut self, to: &Process, reply: Reply) -> Result<Granted, Problem> {
        let Reply::Granted {
            token,
            code,
            created,
            previous,
        } = reply
        else {
            let what = format!("{} was answered {reply:?}", to.name);
            return Err(Problem::violated(Rule::DeadHolderIsSucceeded, what));
        };
        self.story.count(Count::Grants, 1);
        self.story.check(Rule::GrantIsCreated, created, || {
            format!("{} was granted an old lease: {code}", to.name)
        });
        Ok(Granted {
            token,
            code,
            created,
            previous,
        })
    }

    /// The contender asks and must be refused, with this verdict about the holder in the way.
    pub(crate) fn is_kept_out(
        &mut self,
        contender: &mut Process,
        rule: Rule,
        verdict: &str,
    ) -> Result<Refused, Problem> {
        let reply = contender.ask(&AT_ONCE)?;
        let Reply::Refused(refused) = reply else {
            let what = format!("{} was answered {reply:?}", contender.name);
            return Err(Problem::violated(rule, what));
        };
        self.story.count(Count::Refusals, 1);
        let seen = refused.verdict.as_deref();
        self.story.check(rule, seen == Some(verdict), || {
            format!("the verdict was {seen:?}, not {verdict}: {}", refused.text)
        });
        Ok(refused)
    }

    /// The contender asks and must be refused: somebody is at the dead holder's work, and is named.
    pub(crate) fn work_is_awaited(
        &mut self,
        contender: &mut Process,
        verdict: &str,
        at_work: &[String],
    ) -> Result<(), Problem> {
        let refused = self.is_kept_out(contender, Rule::WorkIsAwaited, verdict)?;
        self.story.count(Count::Occupied, 1);
        let named = refused.occupants == at_work;
        self.story.check(Rule::OccupantIsNamed, named, || {
            format!("{at_work:?} are at work, told was {:?}", refused.occupants)
        });
        Ok(())
    }

    /// The contender asks while the holder in the way runs.
    pub(crate) fn finds_it_alive(&mut self, contender: &mut Process) -> Result<Refused, Problem> {
        self.is_kept_out(contender, Rule::LiveHolderIsKept, alive(Kernel::detect()))
    }

    /// The successor asks and must be granted on this proof that the holder of `old` is gone.
    pub(crate) fn takes_over(
        &mut self,
        authority: &mut Authority,
        successor: &mut Process,
        old: Granted,
        proof: &str,
    ) -> Result<Granted, Problem> {
        let granted = self.acquires(successor)?;
        let (new, before) = (granted.token.generation, old.token.generation);
        self.story.check(Rule::TokensRise, new > before, || {
            format!("generation {new} was granted after {before}")
        });
        let told = authority.news()?;
        let Some(receipt) = told.last() else {
            return Err(Problem::violated(Rule::ProofIsNamed, "there is no receipt"));
        };
        let named = granted.code == Code::TakenOver
            && granted.previous == Some(before)
            && receipt.code == Code::TakenOver
            && receipt.previous_generation == Some(before.get())
            && receipt.proof.as_deref() == Some(proof);
        self.story.check(Rule::ProofIsNamed, named, || {
            format!("the proof is {proof}, the receipt says {receipt}")
        });
        self.story.count(Count::Takeovers, 1);
        Ok(granted)
    }

    /// The holder writes and must be let in.
    pub(crate) fn writes(&mut self, holder: &mut Process, text: &str) -> Result<(), Problem> {
        let order = Command::Write {
            text: text.to_owned(),
        };
        match holder.obey(&order)? {
            Answer::Written => {
                self.story.count(Count::Writes, 1);
                Ok(())
            }
            other => {
                let what = format!("{} writes: {other:?}", holder.name);
                Err(Problem::violated(Rule::WriteIsLetIn, what))
            }
        }
    }

    /// The holder writes and must be turned away at the gate.
    pub(crate) fn is_fenced(
        &mut self,
        holder: &mut Process,
        rule: Rule,
        text: &str,
    ) -> Result<(), Problem> {
        let order = Command::Write {
            text: text.to_owned(),
        };
        let answer = holder.obey(&order)?;
        self.turned_away(holder, rule, &answer)
    }

    /// The answer to a write must be that the gate turned it away.
    pub(crate) fn turned_away(
        &mut self,
        holder: &Process,
        rule: Rule,
        answer: &Answer,
    ) -> Result<(), Problem> {
        if let Answer::Fenced { .. } = answer {
            self.story.count(Count::FencedWrites, 1);
            return Ok(());
        }
        let what = format!("{} writes with an old token: {answer:?}", holder.name);
        Err(Problem::violated(rule, what))
    }

    /// The holder gives its lease back.
    pub(crate) fn releases(&mut self, holder: &mut Process) -> Result<(), Problem> {
        self.does(holder, &Command::Release)
    }

    /// The holder does something that the authority must agree to.
    pub(crate) fn does(&mut self, holder: &mut Process, order: &Command) -> Result<(), Problem> {
        match holder.ask(order)? {
            Reply::Done { .. } => {
                self.story.count(Count::Steps, 1);
                Ok(())
            }
            other => {
                let what = format!("{}: {order:?} was answered {other:?}", holder.name);
                Err(Problem::violated(Rule::LiveHolderIsKept, what))
            }
        }
    }

    /// The holder shows its old token, and must be told that it is stale.
    pub(crate) fn is_told_stale(
        &mut self,
        holder: &mut Process,
        order: &Command,
    ) -> Result<(), Problem> {
        let reply = holder.ask(order)?;
        let told = matches!(&reply, Reply::Refused(refused) if refused.code == Code::StaleToken);
        self.story.check(Rule::StaleTokenIsTold, told, || {
            format!("{}: {order:?} was answered {reply:?}", holder.name)
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lease_core::Locality;
    use lease_procfs::{ProcFs, ProcLiveness, ProcessIdentity};

    use super::*;

    #[test]
    fn a_kernel_without_inodes_of_pidfds_says_in_its_own_words_that_a_holder_runs() {
        for kernel in [Kernel::detect(), Kernel::detect().without_pidfs()] {
            let proc = ProcFs::at("/proc", kernel);
            let own = ProcessIdentity::own(&proc).unwrap();
            let verdict = ProcLiveness::new(proc).judge(&own, Locality::ThisMachine);
            let told = format!("{}: {}", verdict.name(), verdict.evidence().proof);
            assert_eq!(told, alive(kernel));
        }
    }
}
