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
