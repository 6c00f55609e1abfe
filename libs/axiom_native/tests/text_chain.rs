//! A text's chain: each whole chunk once, each link on the one before it.

use axiom_native::text::{Cut, hash};

const CUT: Cut = Cut { fine: 256, fine_text: 8192, coarse: 1024 };

fn chain(text: &[u8]) -> Vec<u64> {
    let mut bytes = vec![1, 2, 3];
    CUT.chain(7, text, &mut bytes);
    bytes.chunks_exact(8).map(|link| u64::from_le_bytes(link.try_into().unwrap())).collect()
}

#[test]
fn whole_chunks_are_linked_and_what_is_left_over_is_not() {
    let text: Vec<u8> =
        (0..20_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    for length in [0, 255, 256, 257, 8191, 8192, 9215, 9216, 20_000] {
        let links = chain(&text[..length]);
        let ends: Vec<usize> = (1..=links.len()).map(|depth| CUT.end_of(depth)).collect();
        assert!(ends.iter().all(|&end| end <= length));
        assert!(CUT.end_of(links.len() + 1) > length);
        let (mut link, mut start) = (7, 0);
        for (&found, end) in links.iter().zip(ends) {
            link = hash(&text[start..end], link);
            assert_eq!(found, link);
            start = end;
        }
    }
}

#[test]
fn hashes_are_xxh3_as_its_specification_has_them() {
    assert_eq!(hash(b"", 0), 0x2D06_8005_38D3_94C2);
}
