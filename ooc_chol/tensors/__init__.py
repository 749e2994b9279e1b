"""Graph-tensor imputation: matrices at the vertices of a graph, whole ones or entries of which are missing."""
