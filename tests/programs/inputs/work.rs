//! Rust's standard library allocates by malloc, realloc, calloc and posix_memalign.
use std::alloc::{alloc, dealloc, Layout};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

fn build(seed: u64) -> u64 {
    let mut index: HashMap<String, Vec<u64>> = HashMap::new();
    for i in 0..20_000 {
        index.entry(format!("word{}", (i * 7919 + seed) % 5003)).or_default().push(i);
    }
    let order: BTreeMap<_, _> = index.iter().collect();
    let text = order.iter().map(|(word, places)| format!("{word}{places:?}")).collect::<Vec<_>>().join(";");
    let mut queue: VecDeque<Box<[u8]>> = VecDeque::new();
    let mut sum = text.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte as u64));
    for i in 0..5000 {
        queue.push_back(vec![i as u8; i % 3000 + 1].into_boxed_slice());
        if i % 3 == 0 {
            sum = sum.wrapping_add(queue.pop_front().map_or(0, |block| block.len() as u64 + block[0] as u64));
        }
    }
    for shift in 0..16 {
        let layout = Layout::from_size_align(1000, 1 << shift).unwrap();
        unsafe {
            let block = alloc(layout);
            assert_eq!(block as usize % layout.align(), 0);
            dealloc(block, layout);
        }
    }
    sum
}

fn main() {
    let (sender, receiver) = mpsc::channel::<Vec<String>>();
    let all = Arc::new(Mutex::new(BTreeMap::new()));
    let threads: Vec<_> = (0..8)
        .map(|seed| {
            let (sender, all) = (sender.clone(), Arc::clone(&all));
            thread::spawn(move || {
                all.lock().unwrap().insert(seed, build(seed));
                for i in 0..500 {
                    sender.send((0..20).map(|j| "x".repeat((i * j) % 200)).collect()).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let letters: usize = receiver.iter().map(|words| words.iter().map(String::len).sum::<usize>()).sum();
    for thread in threads {
        thread.join().unwrap();
    }
    println!("{letters} {:?}", all.lock().unwrap());
}
