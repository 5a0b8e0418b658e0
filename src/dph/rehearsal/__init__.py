"""The near-perfect set D_pef: partition, stored responses, checks before they are used."""
