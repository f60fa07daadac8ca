//! The promises, mounted for the authorities there are.

mod memory {
    use chaos::conformance::Memory;

    chaos::conformance!(Memory::new());
}
