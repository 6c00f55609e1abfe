//! A prompt's text cut into chunks, and the chain of links over them; the scheme is that of
//! `axiom_common.model.prefix`, which says the sizes.

use twox_hash::XxHash3_64;

#[derive(Clone, Copy)]
pub struct Cut {
    pub fine: usize,
    /// Chunks that begin before it are fine, the others coarse; a whole number of fine ones.
    pub fine_text: usize,
    pub coarse: usize,
}

impl Cut {
    /// The links of the whole chunks of `text`, as bytes of little-endian u64.
    pub fn chain(&self, seed: u64, text: &[u8], links: &mut Vec<u8>) {
        links.clear();
        let (mut link, mut rest, mut start) = (seed, text, 0);
        loop {
            let size = if start < self.fine_text { self.fine } else { self.coarse };
            let Some((chunk, after)) = rest.split_at_checked(size) else { return };
            link = XxHash3_64::oneshot_with_seed(link, chunk);
            links.extend_from_slice(&link.to_le_bytes());
            (rest, start) = (after, start + size);
        }
    }

    /// Where the chunk ends that is the last of `depth` chunks.
    pub fn end_of(&self, depth: usize) -> usize {
        let fine = self.fine_text / self.fine;
        if depth <= fine {
            depth * self.fine
        } else {
            self.fine_text + (depth - fine) * self.coarse
        }
    }
}

pub fn hash(text: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, text)
}
