"""The first edition of the claims' rules, frozen: rules as data, the history of their digests, how it judged."""
