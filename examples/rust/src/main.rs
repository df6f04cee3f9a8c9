//! A program that allocates its memory with Cairn.

use cairn_malloc::Cairn;

#[global_allocator]
static ALLOCATOR: Cairn = Cairn;

fn main() {
    let text = vec![0u8; 33].into_boxed_slice();
    let size = unsafe { Cairn::usable_size(&*text as *const [u8]) };
    println!("33 bytes have room for {size}");

    let squares: Vec<u64> = (0..1000).map(|n| n * n).collect();
    println!("the last square is {}", squares[999]);
    drop(vec![1u8; 50_000_000]);
    println!("{} MiB went back", Cairn::purge(0) >> 20);
}
