//! What a freestanding program has to bring: an allocator, a panic handler, an entry point.
//!
//! The C library stands in for the machine's own; nothing of it is reached through std.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::panic::PanicInfo;

#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
    fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
    fn write(file: i32, bytes: *const c_void, count: usize) -> isize;
}

// The precompiled `alloc` names `_Unwind_Resume`, although nothing here unwinds.
#[link(name = "gcc_eh", kind = "static")]
unsafe extern "C" {}

struct Heap;

// SAFETY: `aligned_alloc` gives memory of that size and alignment or null; sizes are rounded up to a
// multiple of the alignment as it asks.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = layout.pad_to_align();
        // SAFETY: see above.
        unsafe { aligned_alloc(layout.align().max(16), layout.size().next_multiple_of(16)).cast() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: the memory came from `aligned_alloc`.
        unsafe { free(memory.cast()) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: takes no argument and does not return.
    unsafe { abort() }
}

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Prints text to standard output.
pub(crate) fn print(text: &str) {
    // SAFETY: the pointer and length are those of one slice.
    let written = unsafe { write(1, text.as_ptr().cast(), text.len()) };
    debug_assert!(written >= 0);
}

#[unsafe(no_mangle)]
extern "C" fn main(_: i32, _: *const *const u8) -> i32 {
    match crate::prove() {
        Ok(text) => {
            print(&text);
            0
        }
        Err(text) => {
            print(&text);
            1
        }
    }
}
