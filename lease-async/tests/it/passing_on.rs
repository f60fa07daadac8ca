//! What an authority of a test leaves to the one in memory that it stands before.

/// Passes on all of an `Authority` but its name, its calls and its receipts: `passes_on!(self => self.memory);`.
macro_rules! passes_on {
    ($this:ident => $memory:expr) => {
        fn id(&$this) -> lease_core::AuthorityId {
            $memory.id()
        }

        fn capabilities(&$this) -> lease_core::Capabilities {
            $memory.capabilities()
        }

        fn default_policy(&$this) -> lease_core::LeasePolicy {
            $memory.default_policy()
        }

        fn set_policy(
            &$this,
            policy: lease_core::LeasePolicy,
        ) -> Result<(), lease_core::PolicyError> {
            $memory.set_policy(policy)
        }

        fn shutdown(
            &$this,
            within: std::time::Duration,
        ) -> lease_async::BoxFuture<lease_async::ShutdownReport> {
            $memory.shutdown(within)
        }

        fn clock(&$this) -> std::sync::Arc<dyn lease_async::AlarmClock> {
            $memory.clock()
        }
    };
}
pub(crate) use passes_on;

/// Passes on the receipts, too, and the calls that nobody hears the answer of: all but its name and the calls that are
/// answered.
macro_rules! passes_on_unanswered {
    ($this:ident => $memory:expr) => {
        $crate::passing_on::passes_on!($this => $memory);

        fn call_detached(&$this, call: lease_core::Call<Self::Holder>) {
            $memory.call_detached(call);
        }

        fn events(&$this) -> lease_async::Events<Self::Holder> {
            $memory.events()
        }
    };
}
pub(crate) use passes_on_unanswered;
