"""The mirror of one engine's KV blocks: its events in, changes of facts about text out.

Blocks form a tree, each with the text of its tokens. A block is *reached* in HBM when it and every
block before it lie there; in a lower medium when those before it are reached at all and it lies
there (an engine reads HBM up to the first gap, and what follows from one lower medium). The facts
of the chunks that end in a block are told while it is reached: so along a text holders are nested,
and nothing is told beyond a gap.

Whatever the mirror can't account for is not told, never guessed: a block after an unknown one, one
with an image, tokens that are not the tokenizer's choice for their text.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.kv_events import (
    BlockHash,
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    KvEvent,
)
from axiom_common.model.prefix import FactChanges, PrefixScope, Uncredited
from axiom_common.model.vocabulary import Vocabulary
from axiom_common.state.block_keys import same_scope, scope_of
from axiom_common.state.fact_ledger import FactLedger, Reach
from axiom_common.state.text_facts import ChainReader, Fact, Place

BLOCKS_MAX = 262_144
"""Blocks kept of an engine; more earn no facts until others go."""
READERS_MAX = 256
"""Chains that go on where they ended, as of running requests, are not read from further back."""
HBM_MEDIA = frozenset((None, "GPU"))
LOWER_MEDIA = {"CPU": 1, "STORAGE": 2}
"""The words that engines use, each with a bit."""
WHOLE_ATTENTION = frozenset((None, "full_attention", "mla_attention"))
"""Kinds of cache in which a prefix is held when all its blocks are."""


class _Block:
    """A block of the tree. `copies`: in HBM. `lower`: bits of LOWER_MEDIA."""

    __slots__ = (
        "children", "copies", "depth", "end", "facts", "lower", "name", "parent", "place", "reach",
        "scope", "text", "tokens",
    )  # fmt: skip

    def __init__(self, name: BlockHash, parent: _Block | None, scope: PrefixScope) -> None:
        self.name = name
        self.parent = parent
        self.scope = scope
        self.children: dict[BlockHash, _Block] | None = None
        self.copies = 0
        self.lower = 0
        self.reach = Reach.NOT
        self.facts: tuple[Fact, ...] = ()
        self.place = Place(0)
        self.tokens: Sequence[int] = ()
        self.text = b""
        self.depth = 0
        self.end = 0

    @property
    def is_held(self) -> bool:
        return self.copies > 0 or self.lower > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedBlock:
    """A block as it is kept on disk, parents first. `adapter`, `cache_salt`: of a first block."""

    name: BlockHash
    parent: BlockHash | None
    tokens: Sequence[int]
    copies: int
    lower: int
    adapter: str = BASE
    cache_salt: str | None = None


class BlockMirror:
    """Folds one engine's events in their order; never raises on what they say.

    `fold` returns what changed of the facts; who tells of many events at once takes them up by
    `note`, and asks for `changes` now and then. `uncredited` counts blocks that earn none, by
    reason. `unsupported`: the engine's caches are not of the kind that prefixes can be told of.
    """

    def __init__(
        self,
        base_model: str,
        revision: str,
        vocabulary: Vocabulary,
        *,
        blocks_max: int = BLOCKS_MAX,
    ) -> None:
        self.uncredited: Counter[Uncredited] = Counter()
        self.unsupported = False
        self._base_model = base_model
        self._revision = revision
        self._vocabulary = vocabulary
        self._blocks_max = blocks_max
        self._block_size = 0
        self._blocks: dict[BlockHash, _Block] = {}
        self._readers: OrderedDict[BlockHash, ChainReader] = OrderedDict()
        self._ledger = FactLedger()

    def __len__(self) -> int:
        return len(self._blocks)

    def fold(self, events: Iterable[KvEvent]) -> FactChanges:
        """After `events`: what is told from now on, and what no longer."""
        self.note(events)
        return self.changes()

    def note(self, events: Iterable[KvEvent]) -> None:
        """Take up `events`; what changes by them is kept until it is asked for."""
        for event in events:
            match event:
                case BlocksStored():
                    self._store(event)
                case BlocksRemoved():
                    self._remove(event)
                case BlocksCleared():
                    self._clear()

    def changes(self) -> FactChanges:
        """What is told, and what no longer, since changes were told last."""
        return self._ledger.changes()

    def forget(self) -> FactChanges:
        """The engine started anew, or nobody knows what it did meanwhile: nothing is held."""
        self.unsupported = False
        self._clear()
        return self._ledger.changes()

    def facts(self) -> FactChanges:
        """All that is told now, for somebody who knows nothing."""
        return self._ledger.whole()

    def saved(self) -> Iterator[SavedBlock]:
        """Every block, parents first; `restore` makes an equal mirror from them."""
        waiting = [block for block in self._blocks.values() if block.parent is None]
        while waiting:
            block = waiting.pop()
            waiting += (block.children or {}).values()
            first = block.parent is None
            yield SavedBlock(
                name=block.name,
                parent=block.parent.name if block.parent else None,
                tokens=block.tokens,
                copies=block.copies,
                lower=block.lower,
                adapter=block.scope.adapter if first else BASE,
                cache_salt=block.scope.cache_salt if first else None,
            )

    def restore(self, saved: Iterable[SavedBlock]) -> FactChanges:
        """Take up, when empty, what a mirror had saved; text and facts are worked out anew."""
        for one in saved:
            if len(self._blocks) >= self._blocks_max:
                break
            scope = PrefixScope(
                base_model=self._base_model,
                revision=self._revision,
                adapter=EngineAdapter(one.adapter),
                cache_salt=one.cache_salt,
            )
            parent = None if one.parent is None else self._blocks.get(one.parent)
            if parent is None and one.parent is not None:
                continue
            self._block_size = self._block_size or len(one.tokens)
            block = self._grow(
                self._reader(parent, scope), parent, scope, one.name, tuple(one.tokens)
            )
            if block is not None:
                block.copies, block.lower = one.copies, one.lower
                self._reach_on(block)
        return self._ledger.changes()

    def _store(self, event: BlocksStored) -> None:
        if self.unsupported or event.group or event.attention not in WHOLE_ATTENTION:
            # A hit of a hybrid engine needs more than one cache to agree; these facts know of one.
            self.uncredited[Uncredited.OTHER_ATTENTION] += len(event.hashes)
            if not self.unsupported:
                self.unsupported = True
                self._clear()
            return
        if event.medium not in HBM_MEDIA and event.medium not in LOWER_MEDIA:
            self.uncredited[Uncredited.UNKNOWN_MEDIUM] += len(event.hashes)
            return
        parent = None if event.parent is None else self._blocks.get(event.parent)
        is_retold = self._is_retold(event)
        reader: ChainReader | None = None
        for position, name in enumerate(event.hashes):
            block = self._blocks.get(name)
            if block is None:
                why = self._why_not(event, position, parent)
                if why is not None:
                    self._leave_out(event, position, why, is_retold=is_retold)
                    return
                scope = parent.scope if parent else self._first_scope(event)
                self._block_size = event.block_size
                reader = reader or self._reader(parent, scope)
                start = position * event.block_size
                tokens = tuple(event.tokens[start : start + event.block_size])
                block = self._grow(reader, parent, scope, name, tokens)
                if block is None:
                    why = Uncredited.UNKNOWN_PARENT
                    self._leave_out(event, position + 1, why, is_retold=is_retold)
                    return
            else:
                # What follows goes on here, wherever the reader is.
                reader = None
            self._keep(block, event.medium, is_retold=is_retold)
            parent = block
        if reader is not None and parent is not None:
            self._readers[parent.name] = reader
            if len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)

    def _why_not(
        self, event: BlocksStored, position: int, parent: _Block | None
    ) -> Uncredited | None:
        """Why a block that the mirror does not know can't be added after `parent`."""
        if parent is None and (position or event.parent is not None):
            return Uncredited.UNKNOWN_PARENT
        if len(event.tokens) != len(event.hashes) * event.block_size or not event.block_size:
            # An engine that leaves blocks out, or tells no tokens.
            return Uncredited.OTHER_BLOCK_SIZE
        if event.block_size != (self._block_size or event.block_size):
            return Uncredited.OTHER_BLOCK_SIZE
        if len(self._blocks) >= self._blocks_max:
            return Uncredited.OVER_BUDGET
        if parent is not None:
            return same_scope(event, position, parent.scope)
        scope = scope_of(event, self._base_model, self._revision)
        return scope if isinstance(scope, Uncredited) else None

    def _first_scope(self, event: BlocksStored) -> PrefixScope:
        scope = scope_of(event, self._base_model, self._revision)
        assert isinstance(scope, PrefixScope)
        return scope

    def _is_retold(self, event: BlocksStored) -> bool:
        """Whether an event tells of blocks that the engine held already, at a request's wish.

        It tells of them from the first one on; a chain's first block is hardly ever held twice.
        """
        first = self._blocks.get(event.hashes[0]) if event.hashes else None
        return event.parent is None and first is not None and first.copies > 0

    def _leave_out(
        self, event: BlocksStored, position: int, why: Uncredited, *, is_retold: bool
    ) -> None:
        """No block from `position` on is added; those known already are where they are told."""
        unknown = 0
        for name in event.hashes[position:]:
            block = self._blocks.get(name)
            if block is None:
                unknown += 1
            else:
                self._keep(block, event.medium, is_retold=is_retold)
        self.uncredited[why] += unknown

    def _grow(
        self,
        reader: ChainReader,
        parent: _Block | None,
        scope: PrefixScope,
        name: BlockHash,
        tokens: tuple[int, ...],
    ) -> _Block | None:
        """A new block, on no medium yet; None when its tokens end the credit of its chain."""
        text = self._vocabulary.text_of(tokens)
        facts = Uncredited.NOT_TEXT if text is None else reader.read(text, tokens)
        if text is None or isinstance(facts, Uncredited):
            self.uncredited[facts if isinstance(facts, Uncredited) else Uncredited.NOT_TEXT] += 1
            return None
        block = _Block(name, parent, scope)
        # Known to the vocabulary, so small numbers.
        block.tokens, block.text, block.facts = array("I", tokens), text, facts
        block.place, block.end = reader.place, reader.end
        block.depth = (parent.depth if parent else 0) + len(tokens)
        self._blocks[name] = block
        if parent is not None:
            parent.children = parent.children or {}
            parent.children[name] = block
        return block

    def _reader(self, parent: _Block | None, scope: PrefixScope) -> ChainReader:
        """Reads on after `parent`, with as much of the text before it as that needs."""
        size = self._block_size
        if parent is None:
            return ChainReader(self._vocabulary, size, Place(scope.seed))
        if (reader := self._readers.pop(parent.name, None)) is not None:
            return reader
        place, block = parent.place, parent
        text, tokens = [block.text], [block.tokens]
        while block.parent and (
            block.end - len(block.text) > place.start
            or block.depth - len(block.tokens) > place.word_token
        ):
            block = block.parent
            text.append(block.text)
            tokens.append(block.tokens)
        behind = place.start - (block.end - len(block.text))
        before = place.word_token - (block.depth - len(block.tokens))
        return ChainReader(
            self._vocabulary,
            size,
            place,
            b"".join(reversed(text))[behind:],
            [token for part in reversed(tokens) for token in part][before:],
        )

    def _keep(self, block: _Block, medium: str | None, *, is_retold: bool) -> None:
        """`block` lies on `medium`; in HBM an engine may hold several copies of it."""
        if medium in LOWER_MEDIA:
            block.lower |= LOWER_MEDIA[str(medium)]
        elif not is_retold or not block.copies:
            block.copies += 1
        self._reach_on(block)

    def _remove(self, event: BlocksRemoved) -> None:
        for name in event.hashes:
            block = self._blocks.get(name)
            if block is None:
                continue
            if event.medium in HBM_MEDIA:
                block.copies = max(0, block.copies - 1)
            else:
                block.lower &= ~LOWER_MEDIA.get(str(event.medium), 0)
            self._reach_on(block)
            self._prune(block)

    def _reach_on(self, block: _Block) -> None:
        """Work out how `block`, and all that follow where that changes, are reached."""
        waiting = [block]
        while waiting:
            one = waiting.pop()
            before = one.parent.reach if one.parent else Reach.HBM
            if one.copies and before is Reach.HBM:
                reach = Reach.HBM
            else:
                reach = Reach.LOWER if one.lower and before is not Reach.NOT else Reach.NOT
            if reach is not one.reach:
                self._ledger.move(one.facts, one.reach, reach)
                one.reach = reach
                waiting += (one.children or {}).values()

    def _prune(self, block: _Block | None) -> None:
        """Blocks that are nowhere stay only while one that follows is somewhere."""
        while block is not None and not block.is_held and not block.children:
            del self._blocks[block.name]
            if block.parent is not None and block.parent.children:
                del block.parent.children[block.name]
            block = block.parent

    def _clear(self) -> None:
        self._block_size = 0
        self._blocks.clear()
        self._readers.clear()
        self._ledger.clear()
