"""Sampling completions, and reading them again: batches of prompts with completions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from core.logprobs import token_logprobs
from core.models.language_model import LanguageModel
from core.tokenizer import CharTokenizer


@dataclass(frozen=True)
class Completions:
    """Prompts and their completions, both padded on the right; B rows, P and T the longest of each.

    ``mask`` is True at a completion's real tokens, EOS included.
    """

    prompts: Tensor  # int64 [B, P]
    prompt_mask: Tensor  # bool [B, P]
    tokens: Tensor  # int64 [B, T], the completion only
    mask: Tensor  # bool [B, T]

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def ended(self) -> Tensor:
        """Which rows end with EOS, bool [B]; the others were cut off."""
        return ((self.tokens == CharTokenizer.eos_id) & self.mask).any(1)

    def sequences(self) -> tuple[Tensor, Tensor]:
        """Prompt and completion in one piece, padded on the right: ([B, P+T], lengths int64 [B] on the CPU)."""
        starts = self.prompt_mask.sum(1)
        ends = starts + self.mask.sum(1)
        behind = starts.unsqueeze(1) + torch.arange(self.tokens.shape[1], device=starts.device)
        together = F.pad(torch.where(self.prompt_mask, self.prompts, CharTokenizer.pad_id), (0, self.tokens.shape[1]))
        together = together.scatter(1, behind, torch.where(self.mask, self.tokens, CharTokenizer.pad_id))
        lengths = ends.cpu()
        return together[:, : int(lengths.max())], lengths

    def rows(self, index: Tensor) -> "Completions":
        """Some rows in the given order, without the columns that none of them needs."""
        prompt_mask, mask = self.prompt_mask[index], self.mask[index]
        longest_prompt, longest = int(prompt_mask.sum(1).max()), max(1, int(mask.sum(1).max()))
        return Completions(
            self.prompts[index][:, :longest_prompt], prompt_mask[:, :longest_prompt],
            self.tokens[index][:, :longest], mask[:, :longest],
        )  # fmt: skip

    def texts(self, tokenizer: CharTokenizer) -> list[str]:
        """Each completion as text."""
        kept = torch.where(self.mask, self.tokens, CharTokenizer.eos_id).tolist()
        return [tokenizer.decode(row) for row in kept]

    def to(self, device: torch.device) -> "Completions":
        """The same on another device."""
        return Completions(*(each.to(device) for each in (self.prompts, self.prompt_mask, self.tokens, self.mask)))


@dataclass(frozen=True)
class Rollout(Completions):
    """Completions as sampled, with what was known then.

    ``logprobs`` are those of the drawn tokens at the sampling temperature, before top-k and top-p; 0 where masked.
    ``logits`` (at that temperature) and ``hidden`` are kept on request only and undefined where masked.
    """

    logprobs: Tensor  # [B, T], in the model's precision: float32 unless it was made otherwise
    logits: Tensor | None = None  # [B, T, V]
    hidden: Tensor | None = None  # [B, T, H]


LOOK_EVERY = 8
"""Tokens between two looks at which rows have ended, off the CPU: each look makes the host wait for the device."""


def token_width(batch: Completions) -> int:
    """Columns of the completion part."""
    return batch.tokens.shape[1]


def pad(rows: Sequence[Sequence[int]], device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Rows of ids as ([B, longest] with PAD on the right, mask bool of the same shape)."""
    longest = max(1, *(len(row) for row in rows)) if rows else 1
    padded = [[*row, *[CharTokenizer.pad_id] * (longest - len(row))] for row in rows]
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    return torch.tensor(padded, device=device), torch.arange(longest, device=device) < lengths


def completions_of(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], device: torch.device | None = None
) -> Completions:
    """Given prompts and completions (with their EOS) as a batch."""
    return Completions(*pad(prompts, device), *pad(completions, device))


def completion_hidden(model: LanguageModel, batch: Completions) -> Tensor:
    """The hidden state from which each completion token is predicted, [B, T, H]; undefined where masked.

    The prompt is read first: position t of the completion has seen all of the prompt and the t tokens before it. A
    row's last token predicts nothing, so that it is not read.
    """
    sequences, lengths = batch.sequences()
    lengths = (lengths - 1).clamp(min=1)
    sequences = sequences[:, : int(lengths.max())]
    rows, length = sequences.shape
    before = batch.prompt_mask.sum(1, keepdim=True) - 1 + torch.arange(token_width(batch), device=sequences.device)
    places = before.clamp(max=length - 1) + length * torch.arange(rows, device=sequences.device).unsqueeze(1)
    return model.hidden_at(sequences, lengths, places.flatten()).unflatten(0, places.shape)


def completion_logits(model: LanguageModel, batch: Completions, temperature: float = 1.0) -> Tensor:
    """The logits that predict each completion token, divided by the temperature, [B, T, V]."""
    return model.logits(completion_hidden(model, batch)) / temperature


def filter_logits(logits: Tensor, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Keep the ``top_k`` likeliest tokens (0: all) and of these the smallest set of probability ``top_p``.

    [..., V] -> [..., V] with −inf at what is dropped; the likeliest token always stays. A top_k beyond the
    vocabulary is no limit. (Nucleus sampling: arXiv 1904.09751.)
    """
    if 0 < top_k < logits.shape[-1]:
        smallest = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        dropped = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= top_p)
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits


def uniforms(row_seeds: Tensor, count: int) -> Tensor:
    """``count`` numbers in [0, 1) for each row seed, int64 [B] -> float32 [B, count].

    The number at (row, position) depends on that row's seed and that position only (SplitMix64 as a counter-based
    generator), so a row's text hangs on no other row, nor on the batch's size, nor on when others stop.
    """
    golden, first, second = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15  # as signed 64 bits
    z = row_seeds.unsqueeze(1) + golden * torch.arange(1, count + 1, device=row_seeds.device)
    z = (z ^ _shift_right(z, 30)) * first
    z = (z ^ _shift_right(z, 27)) * second
    z = z ^ _shift_right(z, 31)
    return _shift_right(z, 40).float() / 2**24


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Unsigned shift of int64 (torch shifts arithmetically)."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """The token at which the cumulated probability passes ``uniform``: [B, V], [B] in [0, 1) -> int64 [B].

    Tokens of probability 0 are never drawn. Where the logits are not numbers, neither does the result mean anything.
    """
    cumulated = logits.softmax(-1).cumsum(-1)
    threshold = uniform.clamp(max=1 - 2**-23).unsqueeze(1) * cumulated[:, -1:]  # less than the total, rounded too
    return torch.searchsorted(cumulated, threshold, right=True).squeeze(1).clamp(max=logits.shape[-1] - 1)


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    *,
    row_seeds: Tensor | None = None,
    keep: bool = False,
) -> Rollout:
    """Sample a completion for each prompt until EOS or ``max_new_tokens``.

    Args:
        prompts: ids of each whole prompt, special tokens included; lengths may differ, none may be empty.
        generator: gives one seed per row; or give ``row_seeds``, int64 [B], to choose the rows' numbers yourself.
        keep: also return logits and hidden states.

    Raises ValueError for an empty batch or prompt, or a setting out of range.
    """
    if not prompts or not all(len(prompt) for prompt in prompts):
        raise ValueError("generate needs at least one prompt, and every prompt at least one token")
    if max_new_tokens < 1 or not temperature > 0 or top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(
            "generate needs max_new_tokens ≥ 1, temperature > 0, top_k ≥ 0 and 0 < top_p ≤ 1, not "
            f"{max_new_tokens}, {temperature}, {top_k}, {top_p}"
        )
    if row_seeds is None:
        row_seeds = torch.randint(2**63 - 1, (len(prompts),), generator=generator, device="cpu")
    numbers = uniforms(row_seeds.cpu(), max_new_tokens).to(model.head.weight.device)
    with torch.inference_mode():
        written = _write(model, prompts, numbers, temperature, top_k, top_p, keep)
    # What inference mode has made may not take part in gradients; a copy may.
    return replace(written, **{name: each.clone() for name, each in vars(written).items() if each is not None})


def _write(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    numbers: Tensor,
    temperature: float,
    top_k: int,
    top_p: float,
    keep: bool,
) -> Rollout:
    """The loop of :func:`generate`; ``numbers`` [B, max_new_tokens] decide what is drawn."""
    device, max_new_tokens = numbers.device, numbers.shape[1]
    distinct: dict[tuple[int, ...], int] = {}
    which = torch.tensor([distinct.setdefault(tuple(prompt), len(distinct)) for prompt in prompts], device=device)
    prompt_tokens, prompt_mask = pad(list(distinct), device)
    hidden, state = model.begin(prompt_tokens, prompt_mask.sum(1))
    if len(distinct) < len(prompts):
        hidden, state = hidden[which], model.select(state, which)

    rows = torch.arange(len(prompts), device=device)  # rows still being written
    going = torch.ones(len(prompts), dtype=torch.bool, device=device)  # which of them have not ended
    look_every = 1 if device.type == "cpu" else LOOK_EVERY
    numbers = numbers.t().contiguous()
    places, drawn_tokens, all_logits, all_hidden = [], [], [], []
    for t in range(max_new_tokens):
        now = model.logits(hidden) / temperature
        drawn = draw(filter_logits(now, top_k, top_p), numbers[t].index_select(0, rows))
        places.append(rows * max_new_tokens + t)
        drawn_tokens.append(drawn)
        all_logits.append(now)
        if keep:
            all_hidden.append(hidden)
        going = going & (drawn != CharTokenizer.eos_id)
        if (t + 1) % look_every == 0:
            left = going.nonzero().squeeze(1)
            if len(left) == 0:
                break
            if len(left) < len(rows):
                rows, drawn, going = (each.index_select(0, left) for each in (rows, drawn, going))
                state = model.select(state, left)
        if t + 1 < max_new_tokens:
            hidden, state = model.advance(drawn, state)

    shape, where = (len(prompts), max_new_tokens), torch.cat(places)
    drawn, logits = torch.cat(drawn_tokens), torch.cat(all_logits)
    tokens = _spread(drawn, where, shape, CharTokenizer.pad_id)
    ends = tokens == CharTokenizer.eos_id
    mask = (tokens != CharTokenizer.pad_id) & (ends.cumsum(1) - ends.long() == 0)  # a row may be written past its end
    longest = max(1, int(mask.sum(1).max()))
    mask = mask[:, :longest]
    return Rollout(
        prompts=prompt_tokens[which], prompt_mask=prompt_mask[which],
        tokens=torch.where(mask, tokens[:, :longest], CharTokenizer.pad_id), mask=mask,
        logprobs=torch.where(mask, _spread(token_logprobs(logits, drawn), where, shape)[:, :longest], 0),
        logits=_spread(logits, where, shape)[:, :longest] if keep else None,
        hidden=_spread(torch.cat(all_hidden), where, shape)[:, :longest] if keep else None,
    )  # fmt: skip


def _spread(values: Tensor, where: Tensor, shape: tuple[int, int], fill: float = 0) -> Tensor:
    """What the steps wrote, one after another, at its places of the flattened ``shape`` -> [B, T, …]."""
    flat = values.new_full((shape[0] * shape[1], *values.shape[1:]), fill)
    return flat.index_copy_(0, where, values).unflatten(0, shape)
