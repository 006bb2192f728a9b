"""Where scores come from. The text rules here are torch-free; the sources that score batches live beside them."""

from core.rewards.words import word_rule as word_rule
