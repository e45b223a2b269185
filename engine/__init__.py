"""A real engine: paged KV cache and continuous batching in torch, recording what it does."""
