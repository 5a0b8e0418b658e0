"""The laboratory: experiments with dph that are part of the repository and not of the package."""
