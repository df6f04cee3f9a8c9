//! Makes Cairn the allocator of a Rust program:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: cairn_malloc::Cairn = cairn_malloc::Cairn;
//! ```
//!
//! libcairn.a also defines malloc(), so that C libraries in the same program use it, too.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

mod c {
    use std::ffi::c_void;

    extern "C" {
        pub fn cairn_malloc(size: usize) -> *mut c_void;
        pub fn cairn_calloc(count: usize, size: usize) -> *mut c_void;
        pub fn cairn_realloc(block: *mut c_void, size: usize) -> *mut c_void;
        pub fn cairn_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
        pub fn cairn_free(block: *mut c_void);
        pub fn cairn_usable_size(block: *const c_void) -> usize;
        pub fn cairn_purge(keep_bytes: usize) -> usize;
    }
}

/// Every block of Cairn is aligned to this many bytes.
const ALIGNMENT: usize = 16;

pub struct Cairn;

// SAFETY: any thread may call these functions. They never unwind, and they keep the contract of
// malloc(). Rust requests no blocks of 0 bytes, so that cairn_realloc() never frees its block.
unsafe impl GlobalAlloc for Cairn {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if layout.align() <= ALIGNMENT {
            c::cairn_malloc(layout.size())
        } else {
            c::cairn_aligned_alloc(layout.align(), layout.size())
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return c::cairn_calloc(1, layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            block.write_bytes(0, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return c::cairn_realloc(block.cast(), size).cast();
        }
        let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !moved.is_null() {
            block.copy_to_nonoverlapping(moved, layout.size().min(size));
            self.dealloc(block, layout);
        }
        moved
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        c::cairn_free(block.cast());
    }
}

impl Cairn {
    /// Returns how many bytes of a live block may be used.
    ///
    /// # Safety
    ///
    /// `block` must come from this allocator and must be live.
    pub unsafe fn usable_size<T: ?Sized>(block: *const T) -> usize {
        c::cairn_usable_size(block.cast::<c_void>())
    }

    /// Gives free memory back to the kernel until at most `keep_bytes` of it are left. Returns how
    /// many bytes it gave back.
    pub fn purge(keep_bytes: usize) -> usize {
        // SAFETY: any thread may call this at any time.
        unsafe { c::cairn_purge(keep_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Cairn = Cairn;

    #[test]
    fn blocks_have_their_alignment_and_keep_what_is_in_them() {
        for shift in 0..=22 {
            for size in [1, 100, 5000, 100_000] {
                let layout = Layout::from_size_align(size, 1 << shift).unwrap();
                unsafe {
                    let mut block = ALLOCATOR.alloc_zeroed(layout);
                    assert!(!block.is_null() && block as usize % layout.align() == 0);
                    assert!((0..size).all(|i| *block.add(i) == 0));
                    block.write_bytes(7, size);
                    block = ALLOCATOR.realloc(block, layout, 3 * size);
                    assert!(!block.is_null() && block as usize % layout.align() == 0);
                    assert!((0..size).all(|i| *block.add(i) == 7));
                    ALLOCATOR.dealloc(
                        block,
                        Layout::from_size_align(3 * size, 1 << shift).unwrap(),
                    );
                }
            }
        }
    }

    #[test]
    fn no_memory_is_an_error_and_no_end() {
        let mut vector: Vec<u8> = Vec::new();
        assert!(vector.try_reserve(isize::MAX as usize).is_err());
        assert!(vector.try_reserve(1 << 20).is_ok());
    }

    #[test]
    fn threads_free_what_others_allocated() {
        let (sender, receiver) = std::sync::mpsc::channel::<Box<[usize; 10]>>();
        let consumer =
            std::thread::spawn(move || receiver.iter().map(|block| block[9]).sum::<usize>());
        for number in 0..10_000 {
            sender.send(Box::new([number; 10])).unwrap();
        }
        drop(sender);
        assert_eq!(consumer.join().unwrap(), 49_995_000);
    }
}
