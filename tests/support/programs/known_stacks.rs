// known_stacks.rs - Rust functions whose bytes and blocks follow by a formula.
//
// known_stacks ROUNDS: in each round, Tree::<u64>::grow makes 3 boxes of 48 bytes, numbers makes a
// vector of 100 bytes in a function that is inlined into it, and text makes a string of 40 bytes.
use std::hint::black_box;

struct Tree<T> {
    values: [T; 6],
}

impl<T: Copy> Tree<T> {
    #[inline(never)]
    fn grow(value: T) {
        for _ in 0..3 {
            black_box(Box::new(Tree { values: [value; 6] }).values);
        }
    }
}

mod inner {
    #[inline(always)]
    pub fn make() -> Vec<u8> {
        vec![7u8; std::hint::black_box(100)]
    }
}

#[inline(never)]
fn numbers() {
    black_box(&inner::make());
}

#[inline(never)]
fn text() {
    black_box(&String::with_capacity(black_box(40)));
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|one| one.parse().ok()).unwrap_or(1);
    for _ in 0..rounds {
        Tree::<u64>::grow(black_box(1));
        numbers();
        text();
    }
}
