"""The regional gateway: decides and serves; OpenAI-compatible API and admin REST."""
