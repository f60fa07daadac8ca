//! The promises, mounted for the authorities there are.

mod memory {
    use chaos::conformance::Memory;

    chaos::conformance!(Memory::new());
}

#[cfg(feature = "async")]
mod tokio_memory {
    use chaos::conformance::TokioMemory;

    chaos::conformance!(TokioMemory::new().expect("the system has randomness"));
}

/// An authority that ends terms when they are over, and not with the next call.
mod eager {
    use std::time::Duration;

    use chaos::conformance::{Heard, Memory, Subject};
    use chaos::oracle::Listed;
    use lease_core::{
        Action, Call, Capabilities, Grant, LeasePolicy, Moment, PolicyError, Receipt, Refusal,
        ResourceKey, SessionHolder, Verdict, Wait, WaiterId,
    };

    struct Eager(Memory);

    impl Subject for Eager {
        fn start(&mut self, policy: LeasePolicy) -> Result<(), PolicyError> {
            self.0.start(policy)
        }

        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn now(&self) -> Moment {
            self.0.now()
        }

        fn pass(&mut self, span: Duration) {
            self.0.pass(span);
            let swept = self.0.call(&Call {
                resource: None,
                action: Action::Sweep,
                wait: Wait::No,
            });
            assert!(matches!(swept, Heard::Many(_)), "{swept:?}");
        }

        fn observe(&mut self, holder: &SessionHolder, verdict: Verdict) {
            self.0.observe(holder, verdict);
        }

        fn call(&mut self, call: &Call<SessionHolder>) -> Heard {
            self.0.call(call)
        }

        fn settled(&mut self) -> Vec<(WaiterId, Result<Grant, Refusal<SessionHolder>>)> {
            self.0.settled()
        }

        fn cancel(&mut self, waiter: WaiterId) {
            self.0.cancel(waiter);
        }

        fn abandon(&mut self, resource: &ResourceKey, grant: Grant) {
            self.0.abandon(resource, grant);
        }

        fn listed(&mut self) -> Vec<Listed<SessionHolder>> {
            self.0.listed()
        }

        fn receipts(&mut self) -> Vec<Receipt<SessionHolder>> {
            self.0.receipts()
        }

        fn restart(&mut self) {
            self.0.restart();
        }
    }

    chaos::conformance!(Eager(Memory::new()));
}
