"""The ledger: every claim of the papers as code, with a rule fixed before the runs, and what the runs say."""
