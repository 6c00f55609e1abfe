//! Zeroed memory for tables.
//!
//! From a certain size on it is mapped, so that it goes back when the table goes, and populated, for
//! keys are spread over all of it at once and a fault a page would take longer than all else in a
//! rebuild. Even so the kernel's share of growing would be half of it. So most are room, of addresses
//! only, for a larger table; some whose table went are kept, and grow into those to come.

use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;

const MAPPED_FROM_BYTES: usize = 8 * 1024;
/// Addresses of one mapping. A larger table has one of its own size, which is not kept.
const ROOM_BYTES: usize = 1 << 20;
/// Of those kept, which are memory of nobody.
const KEPT_MAX: usize = 32;
const KEPT_BYTES_MAX: usize = 8 << 20;

static KEPT: Mutex<Vec<Mapped>> = Mutex::new(Vec::new());

/// A cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// Nothing was written beyond `used` bytes.
struct Mapped {
    map: MmapMut,
    used: usize,
}

pub struct Memory {
    start: *mut u8,
    mapped: Option<Mapped>,
    _heap: Box<[Line]>,
}

impl Memory {
    /// At least `bytes`, aligned to a cache line.
    pub fn zeroed(bytes: usize) -> Memory {
        if bytes >= MAPPED_FROM_BYTES
            && let Some(mut mapped) = Mapped::of(bytes)
        {
            let start = mapped.map.as_mut_ptr();
            return Memory { start, mapped: Some(mapped), _heap: Box::default() };
        }
        let mut heap = vec![Line { _bytes: [0; 64] }; bytes.div_ceil(64)].into_boxed_slice();
        Memory { start: heap.as_mut_ptr().cast(), mapped: None, _heap: heap }
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(mapped) = self.mapped.take().filter(|mapped| mapped.map.len() == ROOM_BYTES) {
            let mut kept = KEPT.lock();
            let bytes: usize = kept.iter().map(|other| other.used).sum();
            if kept.len() < KEPT_MAX && bytes + mapped.used <= KEPT_BYTES_MAX {
                kept.push(mapped);
            }
        }
    }
}

impl Mapped {
    fn of(bytes: usize) -> Option<Mapped> {
        if bytes > ROOM_BYTES {
            let map = MmapOptions::new().len(bytes).populate().map_anon().ok()?;
            return Some(Mapped { map, used: bytes });
        }
        // One that was larger would hold on to memory that this table has no use for.
        let kept = KEPT.lock().pop().filter(|kept| kept.used <= bytes);
        let mut mapped = kept.map_or_else(Mapped::room, Some)?;
        mapped.map[..mapped.used].fill(0);
        mapped.populate(bytes);
        Some(mapped)
    }

    fn room() -> Option<Mapped> {
        let map = MmapOptions::new().len(ROOM_BYTES).no_reserve_swap().map_anon().ok()?;
        // Huge pages would take the room for what is in use.
        #[cfg(target_os = "linux")]
        map.advise(memmap2::Advice::NoHugePage).ok();
        Some(Mapped { map, used: 0 })
    }

    fn populate(&mut self, bytes: usize) {
        // A kernel that does not know this takes a fault a page.
        #[cfg(target_os = "linux")]
        self.map.advise_range(memmap2::Advice::PopulateWrite, self.used, bytes - self.used).ok();
        self.used = bytes;
    }
}

/// What is kept goes back too.
pub fn give_back() {
    KEPT.lock().clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_whatever_was_there_before() {
        for round in 0..200 {
            let bytes = MAPPED_FROM_BYTES + 64 * (round * 7_919 % 4_000);
            let memory = Memory::zeroed(bytes);
            // SAFETY: so many bytes, which nobody else has.
            let all = unsafe { std::slice::from_raw_parts_mut(memory.start(), bytes) };
            assert!(all.iter().all(|&byte| byte == 0), "{bytes} bytes in round {round}");
            all.fill(0xFF);
        }
        give_back();
        assert!(KEPT.lock().is_empty());
    }
}
